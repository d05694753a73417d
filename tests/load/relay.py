"""A relay in threads for tests: TLS in front of a server, or an HTTP proxy that answers CONNECT."""

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType

TLS = Path(__file__).parent.parent / "cases" / "tls"


def context() -> ssl.SSLContext:
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    settings.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return settings


class Relay:
    """`with Relay(port, tls=True) as relay`: `relay.port` leads to the given port; `heard` are first lines.

    With `unix` it listens on that path instead; `url` names it in either case.
    """

    def __init__(self, there: int, *, tls: bool = False, proxy: bool = False, unix: Path | None = None) -> None:
        self.there, self.proxy = there, proxy
        self.context = context() if tls else None
        self.heard: list[str] = []
        self.port = 0
        if unix is not None:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(unix))
            self.listener.listen(64)
            self.url = f"unix://{unix}"
        else:
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.port = self.listener.getsockname()[1]
            self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self.threads: list[threading.Thread] = []
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> "Relay":
        self._start(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for sock in self.sockets:
            sock.close()

    def _start(self, work: object, *given: object) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)  # type: ignore[arg-type]
        self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(sock)
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        there = socket.create_connection(("127.0.0.1", self.there))
        self.sockets.append(there)
        with contextlib.suppress(OSError):
            if self.proxy:
                head = sock.recv(65536)
                if not head:
                    return
                self.heard.append(head.split(b"\r\n")[0].decode())
                if head.startswith(b"CONNECT"):
                    sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    there.sendall(head)
            if self.context is not None:
                sock = self.context.wrap_socket(sock, server_side=True)
                self.sockets.append(sock)
            self._start(self._copy, there, sock)
            self._copy(sock, there)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
