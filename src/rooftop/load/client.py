"""One connection to one server: sockets, proxy tunnel, TLS and kernel receive stamps."""

import errno
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from rooftop.load.endpoint import Endpoint

if TYPE_CHECKING:
    import ssl

    from rooftop.load.tls import Tls

SO_TIMESTAMPNS = 35
ANCILLARY = 64


class Connection:
    """One connection and, while it is busy, the request on it.

    `quick`: a response on plain TCP is being read; the driving loop reads such connections itself and leaves all
    others to `advance`, `flush` and `receive`.
    """

    __slots__ = ("begun", "begun_ns", "connect_ns", "ended", "endpoint", "fd", "heard_ns", "kept", "number", "out",
                 "parser", "quick", "received", "request", "room", "server", "sock", "state", "status", "tls", "tls_ns")

    def __init__(self, endpoint: Endpoint, server: int, number: int, context: "ssl.SSLContext | None") -> None:
        self.endpoint, self.server, self.number = endpoint, server, number
        self.quick = False
        self.parser: Any = None
        self.request: Any = None
        self.out: memoryview | None = None
        self.tls = _tls(context, endpoint.host) if endpoint.tls and context is not None else None
        self.ended = self.kept = False
        self.status = 0
        self.received = 0
        self.room = 0
        self.heard_ns = 0
        self.connect_ns = self.tls_ns = 0
        self.state = "connecting"
        self.sock = sock = socket.socket(endpoint.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if endpoint.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stamp_receives(sock)
        self.fd = sock.fileno()
        self.begun_ns = self.heard_ns = time.monotonic_ns()
        self.begun = sock.connect_ex(endpoint.address)

    def begin_again(self) -> bool:
        """Ask once more where the server's queue was full (a Unix socket's connect does not wait); whether it was not.
        """
        if self.state == "connecting" and self.begun == errno.EAGAIN:
            self.begun = self.sock.connect_ex(self.endpoint.address)
        return self.begun != errno.EAGAIN

    def advance(self) -> bool:
        """Go on with connecting; True once requests can be sent.  Raises OSError (ssl.SSLError is one)."""
        if self.state == "connecting":
            error = self.begun or errno.EINPROGRESS
            if error == errno.EINPROGRESS:
                error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            try:
                self.sock.getpeername()
            except OSError:
                return False
            self.connect_ns = time.monotonic_ns() - self.begun_ns
            self.state = "ready"
            if self.endpoint.tunnel:
                self.state = "tunnel"
                self.sock.send(self.endpoint.tunnel)
                return False
            if self.tls:
                self.state = "handshake"
        if self.state == "tunnel" and not self._tunnelled():
            return False
        return self.state != "handshake" or self._shaken()

    def _tunnelled(self) -> bool:
        try:
            answer = self.sock.recv(8192, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        end = answer.find(b"\r\n\r\n")
        if end < 0:
            if not answer or len(answer) >= 8192:
                raise OSError("the proxy gave no answer to CONNECT")
            return False
        self.sock.recv(end + 4)
        words = answer.split(b"\r\n", 1)[0].decode("latin-1")[:200]
        if len(words.split()) < 2 or not words.split()[1].startswith("2"):
            raise OSError(f"the proxy refused: {words}")
        self.state = "handshake"
        return True

    def _shaken(self) -> bool:
        if self.tls is None:
            return True
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            data = None
        if data == b"":
            raise OSError("the server closed the connection during the TLS handshake")
        self.tls.incoming.write(data or b"")
        done = self.tls.shake()
        self._push_out(self.tls)
        if not done:
            return False
        self.tls_ns = time.monotonic_ns() - self.begun_ns - self.connect_ns
        self.state = "ready"
        return True

    def _push_out(self, tls: "Tls") -> None:
        self.out = memoryview((bytes(self.out) if self.out else b"") + tls.outgoing.read())
        self.flush()

    def send(self, head: bytes, body: bytes | memoryview) -> bool:
        """Hand a request to the kernel; False where some of it must wait.  Raises OSError."""
        if self.tls is not None:
            self.tls.wire.write(head)
            self.tls.wire.write(body)
            self._push_out(self.tls)
            return self.out is None
        try:
            sent = self.sock.sendmsg((head, body))
        except BlockingIOError:
            sent = 0
        if sent == len(head) + len(body):
            return True
        self.out = memoryview(b"".join((head, body)))[sent:]
        return False

    def flush(self) -> bool:
        """Send what waits; True when nothing waits any more.  Raises OSError."""
        while self.out:
            try:
                sent = self.sock.send(self.out)
            except BlockingIOError:
                return False
            self.out = self.out[sent:]
        self.out = None
        return True

    def receive(self, room: memoryview) -> tuple[int, bytes]:
        """Read into `room`: (bytes, kernel stamp or b"").  0 bytes with stamp b"eof" is the end.  Raises OSError.

        Under TLS the stamp is that of the read whose bytes opened the last record.
        """
        if self.tls is None:
            count, extra, _, _ = self.sock.recvmsg_into([room], ANCILLARY)
            return count, b"eof" if not count else extra[0][2] if extra else b""
        data, extra, _, _ = self.sock.recvmsg(16384, ANCILLARY)
        if not data:
            return 0, b"eof"
        self.tls.incoming.write(data)
        return self.tls.read_into(room), extra[0][2] if extra else b""

    def close(self) -> None:
        """Close the socket; the request on it is the caller's business."""
        self.quick = False
        self.parser = self.request = self.out = None
        self.state = "closed"
        self.sock.close()

    def on_message_complete(self) -> None:
        """Called by the HTTP parser: the response has ended (a 1xx is not one)."""
        if not self.ended and self.parser.get_status_code() >= 200:
            self.ended = True
            self.status = self.parser.get_status_code()
            self.kept = self.parser.should_keep_alive()


def _tls(context: "ssl.SSLContext", host: str) -> "Tls":
    from rooftop.load.tls import Tls

    return Tls(context, host)


def stamp_receives(sock: socket.socket) -> bool:
    """Ask the kernel for receive times (Linux); False where it gives none."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True
