"""Sockets, TLS, proxies and kernel receive stamps: one connection to one server."""

import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rooftop.errors import BadInput, ServerUnreachable
from rooftop.load.job import Target

SO_TIMESTAMPNS = 35
ANCILLARY = 64
_ROUTES = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "generate": "/generate"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where connections of one server go and how its requests begin.

    `address` is that of the proxy where there is one; `tunnel` is the authority to CONNECT to, "" where none is.
    """

    url: str
    host: str
    tls: bool
    family: int
    address: Any
    head: bytes
    tunnel: str = ""
    proxy: str = ""
    dns_s: float = 0.0


def find_endpoints(target: Target, environment: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Look up each server of the target once.  Raises BadInput (URL, missing key), ServerUnreachable (no such host)."""
    headers = list(target.headers)
    headers += secret_values(target.secret_headers, environment)
    for name, value in headers:
        if any(mark in name + value for mark in "\r\n\0"):
            raise BadInput(f"the header {name!r} has a line end inside")
    return tuple(_find_endpoint(url, target, headers, environment) for url in target.urls)


def secret_values(secret_headers: Sequence[tuple[str, str]],
                  environment: Mapping[str, str] = os.environ) -> tuple[tuple[str, str], ...]:
    """The headers to send for (header, environment variable) pairs: read now, kept nowhere.

    The rule: `Authorization` gets `Bearer ` before the variable's value, any other header gets the value itself; blanks
    around the value are cut.  Raises BadInput for a variable that is unset, empty or cannot stand in a header.
    """
    pairs = []
    for header, name in secret_headers:
        value = environment.get(name, "").strip()
        if not value:
            raise BadInput(f"the environment variable {name} is not set, or is empty", where="--api-key-env",
                           remedy=f"export {name}=... before the command, or name another variable")
        if not (value.isascii() and value.isprintable()):
            raise BadInput(f"the key in {name} holds a character that cannot be sent in a header",
                           where="--api-key-env", remedy="look for a line break or a letter outside ASCII in it")
        pairs.append((header, f"Bearer {value}" if header.lower() == "authorization" else value))
    return tuple(pairs)


def _find_endpoint(url: str, target: Target, headers: list[tuple[str, str]],
                   environment: Mapping[str, str]) -> Endpoint:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"{url!r} is not an http or https URL", remedy="write it like http://127.0.0.1:8000")
    tls = parts.scheme == "https"
    try:
        port = parts.port or (443 if tls else 80)
    except ValueError as error:
        raise BadInput(f"{url!r}: {error}") from error
    host = parts.hostname
    proxy = proxy_for(parts.scheme, host, port, environment)
    named = f"[{host}]" if ":" in host else host
    authority = named if port == (443 if tls else 80) else f"{named}:{port}"
    base = parts.path.rstrip("/")
    route = _ROUTES[target.api]
    path = base.removesuffix("/v1") + route
    origin = f"http://{authority}" if proxy and not tls else ""
    lines = [f"POST {origin}{path} HTTP/1.1", f"Host: {authority}", "Content-Type: application/json",
             "Accept: text/event-stream", "User-Agent: rooftop"]
    own = {name.lower() for name, _ in headers}
    lines = [line for line in lines if line.split(":")[0].lower() not in own]
    lines += [f"{name}: {value}" for name, value in headers]
    where = urlsplit(proxy) if proxy else parts
    family, address, dns_s = _look_up(where.hostname or "", where.port or (8080 if proxy else port), proxy or url)
    return Endpoint(url, host, tls, family, address, "\r\n".join(lines).encode("latin-1") + b"\r\n",
                    tunnel=f"{named}:{port}" if proxy and tls else "", proxy=proxy,
                    dns_s=dns_s)


def _look_up(host: str, port: int, where: str) -> tuple[int, Any, float]:
    """Family and address of the first one that takes a connection, and the seconds that the name took."""
    before = time.monotonic()
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise ServerUnreachable(f"no address is known for {host!r}", where=where,
                                remedy="check the name, and that this machine can resolve it") from error
    dns_s = time.monotonic() - before
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.settimeout(10)
            try:
                probe.connect(address)
            except OSError:
                continue
            return family, address, dns_s
    raise ServerUnreachable(f"nothing answers at {host}:{port}", where=where,
                            remedy="start the server, or check the address and the firewall")


def proxy_for(scheme: str, host: str, port: int, environment: Mapping[str, str]) -> str:
    """URL of the proxy to use, "" for none: http_proxy, HTTPS_PROXY, ALL_PROXY and NO_PROXY as curl reads them.

    HTTP_PROXY in capitals is not read (a CGI request could set it).  Loopback addresses never go through a proxy.
    """
    if host == "localhost" or host.endswith(".localhost") or _is_loopback(host):
        return ""
    names = ("http_proxy",) if scheme == "http" else ("https_proxy", "HTTPS_PROXY")
    proxy = next((environment[name] for name in (*names, "all_proxy", "ALL_PROXY") if environment.get(name)), "")
    skip = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    for entry in skip.replace(" ", ",").split(","):
        name, _, only = entry.strip().lower().lstrip(".").partition(":")
        if name == "*" or (name and (host == name or host.endswith("." + name)) and only in ("", str(port))):
            return ""
    if proxy and "://" not in proxy:
        proxy = "http://" + proxy
    if proxy and not proxy.startswith("http://"):
        raise BadInput(f"the proxy {proxy!r} is not an http proxy", remedy="name an http proxy, or add the server "
                       "to NO_PROXY")
    return proxy


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def tls_context(target: Target) -> ssl.SSLContext:
    """The TLS settings: system trust, unless the target says not to verify."""
    context = ssl.create_default_context()
    if not target.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class Connection:
    """One connection and, while it is busy, the request on it.

    `quick`: a response on plain TCP is being read; the driving loop reads such connections itself and leaves all
    others to `advance`, `flush` and `receive`.
    """

    __slots__ = ("begun_ns", "connect_ns", "ended", "endpoint", "fd", "heard_ns", "incoming", "kept",
                 "number", "out", "outgoing", "parser", "quick", "received", "request", "room", "server", "sock",
                 "state", "status", "tls", "tls_ns")

    def __init__(self, endpoint: Endpoint, server: int, number: int, context: ssl.SSLContext | None) -> None:
        self.endpoint, self.server, self.number = endpoint, server, number
        self.quick = False
        self.parser: Any = None
        self.request: Any = None
        self.out: memoryview | None = None
        self.tls: ssl.SSLObject | None = None
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
        if endpoint.tls and context is not None:
            self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=endpoint.host)
        self.begun_ns = self.heard_ns = time.monotonic_ns()
        sock.connect_ex(endpoint.address)

    def advance(self) -> bool:
        """Go on with connecting; True once requests can be sent.  Raises OSError (ssl.SSLError is one)."""
        if self.state == "connecting":
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
                there = self.endpoint.tunnel
                self.sock.send(f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n\r\n".encode("latin-1"))
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
        words = answer.split(b"\r\n", 1)[0].decode("latin-1")
        if len(words.split()) < 2 or not words.split()[1].startswith("2"):
            raise OSError(f"the proxy refused: {words}")
        self.state = "handshake"
        return True

    def _shaken(self) -> bool:
        if self.tls is None:
            return True
        self._take_in()
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._push_out()
            return False
        self._push_out()
        self.tls_ns = time.monotonic_ns() - self.begun_ns - self.connect_ns
        self.state = "ready"
        return True

    def _take_in(self) -> None:
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        if not data:
            raise OSError("the server closed the connection during the TLS handshake")
        self.incoming.write(data)

    def _push_out(self) -> None:
        self.out = memoryview((bytes(self.out) if self.out else b"") + self.outgoing.read())
        self.flush()

    def send(self, head: bytes, body: bytes | memoryview) -> bool:
        """Hand a request to the kernel; False where some of it must wait.  Raises OSError."""
        if self.tls is not None:
            self.tls.write(head)
            self.tls.write(body)
            self._push_out()
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
        self.incoming.write(data)
        stamp = extra[0][2] if extra else b""
        count = 0
        while count < len(room):
            try:
                plain = self.tls.read(len(room) - count)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                break
            if not plain:
                break
            room[count:count + len(plain)] = plain
            count += len(plain)
        return count, stamp

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


def stamp_receives(sock: socket.socket) -> bool:
    """Ask the kernel for receive times (Linux); False where it gives none."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True
