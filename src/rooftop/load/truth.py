"""A server with known timings: logs when each chunk went out, for tests and the self-test."""

import heapq
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any

import click

from rooftop.load.client import ANCILLARY, stamp_receives
from rooftop.load.script import Script, Step, answer

_clock = time.monotonic_ns
RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Served:
    """One request as the server saw it: when it had come (by the kernel's stamp, so that the server's own lag is not in
    it), and when each chunk with tokens was about to be written."""

    request_id: str
    path: str
    received_ns: int
    chunk_ns: list[int] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)


class _Peer:
    """One accepted connection."""

    __slots__ = ("alive", "heard", "heard_ns", "out", "plan", "served", "sock", "then")

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.heard, self.out = sock, b"", bytearray()
        self.plan: Iterator[Step] | None = None
        self.served: Served | None = None
        self.then = ""
        self.heard_ns = 0
        self.alive = True


class Truth:
    """The server; `with Truth(script) as server:` runs it in a thread, `run()` in this one.

    `log` holds what was served so far.  Loopback only.
    """

    def __init__(self, script: Script | None = None, port: int = 0) -> None:
        self.script = script or Script()
        self.log: list[Served] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self._wake, self._bell = socket.socketpair()
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._epoll.register(self._wake.fileno(), select.EPOLLIN)
        self._peers: dict[int, _Peer] = {}
        self._due: list[tuple[int, int, _Peer, Step]] = []
        self._order = count()
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Truth":
        self._thread = threading.Thread(target=self.run, name="truth", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._bell.send(b"x")
        if self._thread is not None:
            self._thread.join()
        for peer in self._peers.values():
            peer.sock.close()
        for part in (self._listener, self._wake, self._bell, self._epoll):
            part.close()

    def run(self) -> None:
        """Serve until the bell rings."""
        while True:
            for fd, mask in self._epoll.poll(self._nap()):
                if fd == self._wake.fileno():
                    return
                if fd == self._listener.fileno():
                    self._accept()
                else:
                    self._hear(fd, mask)
            now = _clock()
            while self._due and self._due[0][0] <= now:
                _, _, peer, step = heapq.heappop(self._due)
                if peer.alive:
                    self._write(peer, step)
                    self._go_on(peer)

    def _nap(self) -> float:
        """Seconds to sleep in the poll; the last part of a wait is slept by microseconds."""
        if not self._due:
            return -1
        left = self._due[0][0] - _clock()
        if left > 3_000_000:
            return (left - 2_000_000) * 1e-9
        if left > 0:
            select.select((self._epoll,), (), (), left * 1e-9)
        return 0

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stamp_receives(sock)
            self.connections += 1
            self._peers[sock.fileno()] = _Peer(sock)
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _hear(self, fd: int, mask: int) -> None:
        peer = self._peers.get(fd)
        if peer is None:
            return
        if mask & select.EPOLLOUT:
            self._epoll.modify(fd, select.EPOLLIN)
            self._push(peer)
            self._go_on(peer)
        if not peer.alive or not mask & ~select.EPOLLOUT:
            return
        try:
            data, extra, _, _ = peer.sock.recvmsg(1 << 18, ANCILLARY)
        except BlockingIOError:
            return
        except OSError:
            data, extra = b"", []
        if not data:
            self._drop(peer)
            return
        if extra:
            second, nanosecond = struct.unpack("=qq", extra[0][2])
            peer.heard_ns = min(_clock(), second * 1_000_000_000 + nanosecond + _clock() - time.time_ns())
        else:
            peer.heard_ns = _clock()
        peer.heard += data
        self._next_request(peer)

    def _next_request(self, peer: _Peer) -> None:
        head, blank, rest = peer.heard.partition(b"\r\n\r\n")
        if peer.plan is not None or peer.then or not blank:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        peer.heard = rest[length:]
        method, path, *_ = first.split(" ")
        body = json.loads(rest[:length]) if length else {}
        if method == "POST" and not path.endswith("/tokenize"):
            peer.served = Served(headers.get("x-request-id", ""), path, peer.heard_ns, body=body)
            self.log.append(peer.served)
            peer.plan = answer(self.script, path, headers, body)
            self._go_on(peer)
        else:
            self._write(peer, Step(0.0, _page(self.script, path, body)))

    def _go_on(self, peer: _Peer) -> None:
        """Write all steps that are due; the next one is put on the clock."""
        while peer.alive and peer.plan is not None and peer.served is not None and not peer.out:
            step = next(peer.plan, None)
            if step is None:
                peer.plan = peer.served = None
                self._next_request(peer)
                return
            due = peer.served.received_ns + round(step.at_s * 1e9)
            if due > _clock():
                heapq.heappush(self._due, (due, next(self._order), peer, step))
                return
            self._write(peer, step)

    def _write(self, peer: _Peer, step: Step) -> None:
        peer.out += step.data
        peer.then = step.then
        if peer.served is not None:
            peer.served.chunk_ns.extend([_clock()] * step.tokens)
        self._push(peer)

    def _push(self, peer: _Peer) -> None:
        """Send what waits; then do to the connection what the script says."""
        try:
            while peer.out:
                del peer.out[:peer.sock.send(peer.out)]
        except BlockingIOError:
            self._epoll.modify(peer.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
            return
        except OSError:
            self._drop(peer)
            return
        if peer.then == "stall":
            peer.plan = None
        elif peer.then:
            if peer.then == "reset":
                peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        peer.alive = False
        self._peers.pop(peer.sock.fileno(), None)
        peer.sock.close()


def _page(script: Script, path: str, body: dict[str, Any]) -> bytes:
    """The answer to everything but a generation: models, token counts, health."""
    page: dict[str, Any] = {"error": {"message": f"no {path}"}}
    status = 200
    if path.endswith("/models"):
        page = {"object": "list", "data": [{"id": script.model, "object": "model", "max_model_len": 131072}]}
    elif path.endswith("/tokenize"):
        tokens = list(range(len(str(body.get("prompt") or body.get("content") or "").split())))
        page = {"count": len(tokens), "tokens": tokens, "max_model_len": 131072}
    elif path in ("/", "/health"):
        page = {"status": "ok"}
    else:
        status = 404
    text = json.dumps(page).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text


@click.command(help="Serve answers with known timings on 127.0.0.1.")
@click.option("--port", type=int, default=0, help="Port; 0 chooses a free one.")
@click.option("--script", default="{}", help="JSON with fields of the script, such as '{\"ttft_s\": 0.2}'.")
def main(port: int, script: str) -> None:
    """`python -m rooftop.load.truth`."""
    server = Truth(Script(**json.loads(script)), port)
    click.echo(server.url)
    server.run()


if __name__ == "__main__":
    main()
