"""The driving loop: bare epoll, one thread; sends on time, spools bytes and stamps."""

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from httptools import HttpResponseParser

from rooftop.load.client import ANCILLARY, Connection
from rooftop.load.endpoint import Endpoint
from rooftop.load.pace import Pace, Waiting, gather_s
from rooftop.load.pool import Pool
from rooftop.load.spool import BATCH_BYTES, ENDS, MISSING, NOTHING, READ_MOST, Writer
from rooftop.load.stream import SHORT, UNREADABLE, is_alive, unreadable

if TYPE_CHECKING:
    import ssl

SPIN_NS = 80_000
SPARE = 8  # idle connections to have at hand where the number of open streams has no limit
OPEN_TURN = 16  # reads between two looks at the schedule
SECOND_NS = 1_000_000_000
CONNECT_NS = 10 * SECOND_NS
_clock = time.monotonic_ns


class Drive:
    """All connections of a level and the loop over them.

    `prompt` gives the request head's end and the body of prompt i; `tell` hears once a second how far things are.
    """

    def __init__(self, endpoints: tuple[Endpoint, ...], context: "ssl.SSLContext | None", writer: Writer,
                 prompt: Callable[[int], tuple[bytes, memoryview, int]], timeout_s: float) -> None:
        self.pool = Pool(endpoints, context)
        self.writer, self.prompt = writer, prompt
        self.timeout_ns = round(timeout_s * 1e9)
        self.open = [0] * len(endpoints)
        self.waiting: deque[Waiting] = deque()
        self.active = self.active_most = self.done = self.failed = self.chunks = 0
        self.sent_prompts = self.spare = 0
        self.fault: tuple[str, str] | None = None
        self.stopping = False
        self.stamped, self.gather_s = True, 0.0
        self.turn_most = -1
        self.origin_ns = _clock()
        self.pace: Pace | None = None
        self.tell: Callable[[Drive], None] = lambda _: None
        self.control = -1

    # --- connections

    def listen(self, descriptor: int) -> None:
        """Stop the level when this descriptor (the parent's pipe) becomes readable."""
        self.control = descriptor
        self.pool.epoll.register(descriptor, select.EPOLLIN)

    def _open(self, server: int) -> None:
        try:
            self.pool.open(server)
        except OSError as error:
            self.fault = self.fault or ("connect", f"no more connections: {error.strerror}; raise the limit of open "
                                                   "files (ulimit -n)")

    def open_all(self, count: int) -> None:
        """Open `count` connections over all servers and wait until each is ready or has failed."""
        pool, servers = self.pool, len(self.open)
        began = _clock()
        todo = [number % servers for number in range(count)][::-1]
        while not self.stopping and not self.fault:
            while todo and not self.fault and len(pool.connections) - pool.resting() < 256:
                self._open(todo.pop())
            if not todo and len(pool.connections) == pool.resting():
                return
            self._turn(0.1)
            if _clock() - began > CONNECT_NS + (pool.opened // 256) * SECOND_NS:
                self.fault = ("connect", f"only {pool.resting()} of {count} connections were accepted")

    def _put_back(self, connection: Connection) -> None:
        """A connection is free: it takes the request that waits longest for its server, or idles.

        A request that goes again waits for a new connection: the kept one may be as dead as the one before it.
        """
        used = connection.heard_ns != connection.begun_ns
        for waiting in self.waiting:
            if waiting.server == connection.server and not (used and waiting.tries):
                self.waiting.remove(waiting)
                self._send(connection, waiting)
                return
        self.pool.idle[connection.server].append(connection)

    def _refused(self, connection: Connection, kind: str, words: str) -> None:
        """A connection could not be made: the request that waits for it fails."""
        server = connection.server
        self.pool.drop(connection)
        self.pool.refused += 1
        if self.pool.refused > max(32, 2 * len(self.pool.connections)):
            self.fault = self.fault or ("connect", f"{connection.endpoint.url} takes no connections: {words}")
        for waiting in self.waiting:
            if waiting.server == server:
                self.waiting.remove(waiting)
                now = _clock()
                self._record_send(waiting, connection, now, now)
                self._finished(waiting, server, ENDS.index(kind), words)
                return

    # --- requests

    def _dispatch(self, pace: Pace, after: int) -> None:
        """Send the next request, or let it wait for a connection."""
        number = pace.number
        server = min(range(len(self.open)), key=self.open.__getitem__) if len(self.open) > 1 else 0
        self.open[server] += 1
        self.active += 1
        if self.active > self.active_most:
            self.active_most = self.active
        waiting = Waiting(number, self.sent_prompts, pace.take(), after, server)
        self.sent_prompts += 1
        idle = self.pool.idle[server]
        if idle:
            self._send(idle.pop(), waiting)
            if len(idle) < self.spare:
                self._open(server)
        else:
            self.waiting.append(waiting)
            self._open(server)

    def _send(self, connection: Connection, waiting: Waiting) -> None:
        head, body, room = self.prompt(waiting.prompt)
        connection.request = waiting
        connection.ended = False
        connection.received = 0
        connection.room = room
        connection.parser = HttpResponseParser(connection)
        connection.state = "busy"
        now = _clock()
        connection.heard_ns = now
        try:
            whole = connection.send(connection.endpoint.head + head, body)
        except OSError as error:
            self._record_send(waiting, connection, now, now)
            self._broken(connection, "reset", str(error))
            return
        self._record_send(waiting, connection, now, _clock())
        if whole:
            connection.quick = connection.tls is None
        else:
            self.pool.watch(connection, sending=True)

    def _record_send(self, waiting: Waiting, connection: Connection, now: int, sent: int) -> None:
        due = now if waiting.due_ns is None else self.origin_ns + waiting.due_ns
        self.writer.sends.extend((waiting.number, waiting.prompt, connection.number, connection.server, due, sent,
                                  waiting.after))

    def _complete(self, connection: Connection) -> None:
        """The response has ended by its framing."""
        waiting = connection.request
        keep = connection.kept and connection.out is None
        status = connection.status
        connection.quick = False
        connection.parser = connection.request = None
        if keep:
            connection.state = "ready"
            self._put_back(connection)
        else:
            self.pool.drop(connection)
        self._finished(waiting, connection.server, 0, "" if status == 200 else f"http {status}")

    def _broken(self, connection: Connection, kind: str, words: str) -> None:
        """The connection failed with a request on it; one that got no byte back on a kept connection goes again."""
        waiting, server = connection.request, connection.server
        early = connection.received == 0 and kind in ("eof", "reset") and not self.stopping
        self.pool.drop(connection)
        if early and waiting.tries == 0:
            waiting.tries = 1
            self.waiting.append(waiting)
            self._open(server)
            return
        self._finished(waiting, server, ENDS.index(kind), words)

    def _finished(self, waiting: Waiting, server: int, how: int, words: str) -> None:
        now = _clock()
        self.writer.ends.extend((waiting.number, now, how))
        if words:
            self.writer.words.append((waiting.number, words))
        self.open[server] -= 1
        self.active -= 1
        self.done += 1
        self.failed += bool(how or words)
        pace = self.pace
        if pace is not None and pace.closed and pace.wants(now - self.origin_ns):
            self._dispatch(pace, waiting.number)

    # --- the loop

    def run(self, pace: Pace) -> None:
        """One phase: from its origin (now) until all its requests have ended, or it is stopped."""
        self.pace = pace
        self.turn_most, self.spare = (-1, 0) if pace.closed or pace.warmup else (OPEN_TURN, 0 if pace.users else SPARE)
        self.done = self.failed = self.active_most = self.chunks = 0
        self.stamped, self.gather_s = True, 0.0
        self.writer.mark_clocks()
        self.origin_ns = _clock()
        self.writer.ends.extend((NOTHING, self.origin_ns, int(pace.warmup)))
        next_tick = self.origin_ns
        if pace.closed:
            for _ in range(pace.users):
                if pace.wants(0):
                    self._dispatch(pace, NOTHING)
        while not self.stopping and not self.fault:
            now = _clock()
            if now >= next_tick:
                next_tick = now + min(SECOND_NS // 2, max(SECOND_NS // 20, now - self.origin_ns))
                self._tick(now)
            if not pace.closed:
                self._send_due(pace)
            if not self.active and not pace.wants(_clock() - self.origin_ns) and pace.next_due_ns is None:
                break
            self._turn(self._nap(pace, next_tick))
        self._end_all()
        self.writer.mark_clocks()
        self._flush()

    def _send_due(self, pace: Pace) -> None:
        cap = pace.users
        while (not cap or self.active < cap) and pace.wants(_clock() - self.origin_ns):
            self._dispatch(pace, NOTHING)

    def _nap(self, pace: Pace, next_tick: int) -> float:
        """Seconds the loop may sleep.  In the last two milliseconds before a send: by microseconds, then not."""
        due = pace.next_due_ns
        now = _clock()
        if due is None or pace.closed or (pace.users and self.active >= pace.users):
            return max(0.0, (next_tick - now) * 1e-9)
        left = min(due + self.origin_ns, next_tick) - now
        if left > 2_000_000:
            return (left - 1_500_000) * 1e-9
        if left > SPIN_NS:
            select.select((self.pool.epoll,), (), (), (left - SPIN_NS) * 1e-9)
        return 0.0

    def _turn(self, nap_s: float) -> None:
        """Wait once and take in what came.  This is the hot path: a turn for each token, or for a millisecond's."""
        if self.gather_s:
            time.sleep(self.gather_s)
        if self.pool.later:
            nap_s = min(nap_s, self.pool.retry())
        events = self.pool.epoll.poll(nap_s, self.turn_most)
        if not events:
            return
        writer, connections = self.writer, self.pool.connections
        view = writer.view
        began = len(writer.who)
        now = _clock()
        for fd, mask in events:
            connection = connections.get(fd)
            if connection is None or not connection.quick:
                self._attend(fd, connection, mask, now)
                continue
            used = writer.used
            try:
                count, extra, _, _ = connection.sock.recvmsg_into([view[used:used + READ_MOST]], ANCILLARY)
            except BlockingIOError:
                continue
            except OSError as error:
                self._broken(connection, "reset", str(error))
                continue
            if not count:
                self._broken(connection, "eof", "")
                continue
            self._took(connection, used, count, extra[0][2] if extra else b"", now)
            if writer.used > BATCH_BYTES:
                self._lap(began)
                self._flush()
                began = 0
        self._lap(began)

    def _took(self, connection: Connection, used: int, count: int, stamp: bytes, now: int) -> None:
        """A read of `count` bytes lies at `used` in the page: note it, and see whether the response has ended."""
        writer = self.writer
        writer.who.append(connection.request.number)
        writer.sizes.append(count)
        writer.stamps += stamp or MISSING.pack(-1, _clock())
        self.stamped = self.stamped and bool(stamp)
        writer.used = end = used + count
        data = writer.view[used:end]
        connection.received += count
        if count > SHORT or is_alive(data):
            connection.heard_ns = now
        try:
            connection.parser.feed_data(data)
        except UNREADABLE as error:
            if not connection.ended:
                self._broken(connection, "malformed", unreadable(error))
                return
            connection.kept = False
        if connection.ended:
            self._complete(connection)
        elif connection.received > connection.room:
            self._broken(connection, "too large", f"more than {connection.room} bytes")

    def _lap(self, began: int) -> None:
        reads = len(self.writer.who) - began
        if reads:
            self.writer.laps.extend((_clock(), reads))

    def _attend(self, fd: int, connection: Connection | None, mask: int, now: int) -> None:
        """Everything that is not a plain read of a response: connecting, TLS, long sends, idle ends, the parent."""
        if connection is None:
            if fd == self.control:
                self.stopping = not os.read(fd, 64) or True
            return
        if connection.state == "ready":
            self._idle_ended(connection, now)
        elif connection.state == "busy":
            self._read_slowly(connection, mask, now)
        else:
            try:
                ready = connection.advance()
            except OSError as error:
                kind = "tls" if connection.tls is not None and connection.tls.is_fault(error) else "connect"
                self._refused(connection, kind, error.strerror or str(error))
                return
            if ready:
                self.pool.ready(connection)
                self._put_back(connection)
            elif connection.state != "connecting":
                self.pool.watch(connection, sending=connection.out is not None)

    def _idle_ended(self, connection: Connection, now: int) -> None:
        """The server closed a connection between requests: open another, unless it does so at once each time."""
        server, lived = connection.server, now - connection.begun_ns
        if connection.tls is not None:
            with contextlib.suppress(OSError):
                if connection.receive(self.writer.view[self.writer.used:])[1] != b"eof":
                    return
        self.pool.drop(connection)
        if lived > SECOND_NS:
            self._open(server)

    def _read_slowly(self, connection: Connection, mask: int, now: int) -> None:
        writer = self.writer
        try:
            if connection.out is not None and mask & select.EPOLLOUT and connection.flush():
                self.pool.watch(connection, sending=False)
                connection.heard_ns = now
                connection.quick = connection.tls is None
            if not mask & ~select.EPOLLOUT:
                return
            used = writer.used
            count, stamp = connection.receive(writer.view[used:used + READ_MOST])
        except BlockingIOError:
            return
        except OSError as error:
            kind = "tls" if connection.tls is not None and connection.tls.is_fault(error) else "reset"
            self._broken(connection, kind, str(error))
            return
        if not count:
            if stamp == b"eof":
                self._broken(connection, "eof", "")
            return
        self._took(connection, used, count, stamp, now)

    # --- once in a while

    def _tick(self, now: int) -> None:
        """Twice a second, more often at first: silent streams, clocks, what is to go to disk, progress."""
        for connection in list(self.pool.connections.values()):
            if connection.state == "busy":
                if now - connection.heard_ns > self.timeout_ns:
                    self._broken(connection, "timeout", f"silent for {self.timeout_ns * 1e-9:g} s")
            elif connection.state != "ready" and now - connection.begun_ns > CONNECT_NS:
                self._refused(connection, "connect", "no answer to the connection for 10 s")
        self.writer.mark_clocks()
        self._flush()
        if self.pace is not None:
            self.pace.tick(now, self.chunks, self.active >= self.pace.users)
            if self.pace.closed and self.stamped:
                self.gather_s = gather_s(now - self.origin_ns, self.active_most, self.done, self.chunks)
        self.tell(self)

    def _flush(self) -> None:
        self.chunks += self.writer.page.count(b"data:", 0, self.writer.used)
        try:
            self.writer.flush()
        except OSError as error:
            self.fault = self.fault or ("spool", f"the spool cannot be written: {error.strerror}")

    def _end_all(self) -> None:
        """Cut what is still open."""
        if self.pace is not None:
            self.pace.stop("stopped")
        self.waiting.clear()
        for connection in list(self.pool.connections.values()):
            if connection.state == "busy":
                self._broken(connection, "stopped" if self.stopping else "lost", "cut when the level was ended")
