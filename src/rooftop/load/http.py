"""Small blocking HTTP for probing, tokenizing and metrics pages; nothing here is timed.

It goes the load client's way (proxy, Unix socket), because a probe must see what the load will see.
"""

import json
import os
import re
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httptools

from rooftop.errors import Failure, ServerRefused, ServerUnreachable
from rooftop.load.job import Target
from rooftop.load.place import check_url, find_place, hide, reach, secret_values
from rooftop.load.stream import UNREADABLE, Sink, unreadable

Pairs = Sequence[tuple[str, str]]
MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: status, headers (names in lower case) and the whole body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str:
        """The header's value, "" where it is absent."""
        return next((value for key, value in self.headers if key == name.lower()), "")

    @property
    def text(self) -> str:
        """The body as UTF-8, bad bytes marked."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """The body as JSON, None where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def is_page(self) -> bool:
        """It is a web page for people."""
        return "text/html" in self.header("content-type") or self.body.lstrip()[:1] == b"<"


class Session:
    """One keep-alive connection to one server.

    `url` is a base URL; paths are appended to it.  `timeout_s` is the longest silence, and also the longest time a
    whole answer may take.  A request is sent once; only a kept connection that the server had closed is opened anew.
    """

    def __init__(self, url: str, *, headers: Pairs = (), secret_headers: Pairs = (), verify_tls: bool = True,
                 timeout_s: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self.key_env = secret_headers[0][1] if secret_headers else ""
        self.verify_tls = verify_tls
        self._place = find_place(self.url, os.environ)
        self._wire: socket.socket | None = None
        self._told = (*headers, *secret_values(secret_headers), *self._place.proxy_headers)
        given = {name.lower() for name, _ in self._told}
        mine = (("Host", self._place.authority), ("Accept", "*/*"), ("Accept-Encoding", "identity"))
        self._head = "".join(f"{name}: {value}\r\n" for name, value in (
            *(pair for pair in mine if pair[0].lower() not in given), *self._told))

    def get(self, path: str) -> Answer:
        """GET `path`; any status is an Answer.  Raises ServerUnreachable, or ServerRefused for a broken answer."""
        return self._exchange("GET", path, None, self.timeout_s)

    def post(self, path: str, body: object, *, timeout_s: float | None = None) -> Answer:
        """POST `body` as JSON; raises as `get`."""
        data = json.dumps(body).encode()
        return self._exchange("POST", path, data, timeout_s or self.timeout_s)

    def close(self) -> None:
        """Close the connection; the next request would open it anew."""
        if self._wire is not None:
            self._wire.close()
        self._wire = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def hide(self, text: str) -> str:
        """`text` without any secret that a server may have repeated in it."""
        return hide(text, self._told)

    def _exchange(self, method: str, path: str, data: bytes | None, timeout_s: float) -> Answer:
        while True:
            kept = self._wire is not None
            try:
                return self._once(method, path, data, time.monotonic() + timeout_s)
            except (OSError, UnicodeError, *UNREADABLE) as error:
                self.close()
                if not (kept and isinstance(error, ConnectionResetError | BrokenPipeError)):
                    raise _fault(error, self.url + path, timeout_s, self._place.proxy) from error
            except (ServerRefused, KeyboardInterrupt):
                self.close()
                raise

    def _once(self, method: str, path: str, data: bytes | None, until: float) -> Answer:
        if self._wire is None:
            self._wire = self._connect(until - time.monotonic())
        head = f"{method} {self._place.origin}{self._place.path + path or '/'} HTTP/1.1\r\n{self._head}"
        if data is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        self._wire.settimeout(max(0.001, until - time.monotonic()))
        self._wire.sendall(head.encode("latin-1") + b"\r\n" + (data or b""))
        sink = _read(self._wire, until, self.url + path)
        if not sink.kept:
            self.close()
        return Answer(sink.status, tuple(sink.headers.items()), b"".join(sink.parts))

    def _connect(self, timeout_s: float) -> socket.socket:
        place, until = self._place, time.monotonic() + timeout_s
        with ExitStack() as stack:
            wire, _ = reach(place, timeout_s)
            stack.callback(wire.close)
            if place.tunnel:
                wire.sendall(place.tunnel)
                _read_tunnel(wire, until)
                wire.settimeout(max(0.001, until - time.monotonic()))
            if place.tls:
                from rooftop.load.tls import make_context

                wire = make_context(verify=self.verify_tls).wrap_socket(wire, server_hostname=place.host)
            stack.pop_all()
        return wire


def _read(wire: socket.socket, until: float, where: str) -> Sink:
    """One response.

    Raises ServerRefused for one that is cut or does not end, TimeoutError past `until` on the monotonic clock,
    ConnectionResetError where there is none, one of UNREADABLE.
    """
    sink = Sink()
    sink.parser = parser = httptools.HttpResponseParser(sink)
    size = 0
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer did not end")
        wire.settimeout(left)
        data = wire.recv(65536)
        size += len(data)
        if not data:
            _check_cut(sink, size, where)
            return sink
        if size > MOST_BYTES:
            raise ServerRefused("the answer does not end", where=where, remedy="check the path: no page is that long")
        try:
            parser.feed_data(data)
        except UNREADABLE:
            if not sink.complete:
                raise
            sink.kept = False
        if sink.complete:
            return sink


def _check_cut(sink: Sink, size: int, where: str) -> None:
    """The connection has ended: so has the body of an answer that tells no length.  Raises as `_read`."""
    if not size:
        raise ConnectionResetError("closed without an answer")
    sink.status = sink.parser.get_status_code()
    if not sink.headed or "content-length" in sink.headers or "transfer-encoding" in sink.headers:
        raise ServerRefused("the answer broke off", where=where, remedy="see the server's log, and any proxy between")


def _read_tunnel(wire: socket.socket, until: float) -> None:
    answer = b""
    while b"\r\n\r\n" not in answer:
        wire.settimeout(max(0.001, until - time.monotonic()))
        data = wire.recv(1)
        if not data or len(answer) > 8192:
            raise OSError("the proxy gave no answer to CONNECT")
        answer += data
    words = answer.split(b"\r\n", 1)[0].decode("latin-1")[:200]
    if words.split()[1:2] != ["200"]:
        raise OSError(f"the proxy refused: {words}")


def session(target: Target, server: int = 0, *, timeout_s: float = 60.0) -> Session:
    """A session with one server of a target."""
    return Session(target.urls[server], headers=target.headers, secret_headers=target.secret_headers,
                   verify_tls=target.verify_tls, timeout_s=timeout_s)


def fetch(url: str, *, timeout_s: float = 5.0) -> Answer:
    """GET one page (`http://host:port/info?format=json`) on a connection of its own; raises as `Session.get`."""
    page, mark, query = url.partition("?")
    check_url(page)
    with Session(page, timeout_s=timeout_s) as server:
        return server.get(mark + query)


def refusal(server: Session, path: str, answer: Answer) -> ServerRefused:
    """The error for an answer that is not the one asked for: why, and what to do."""
    where, status = server.url + path, answer.status
    if status in (401, 403):
        return _unauthorized(server, where, status)
    if 300 <= status < 400:
        there = answer.header("location")[:200] or "somewhere else"
        return ServerRefused(f"the server redirects to {there}", where=where,
                             remedy="give that URL instead")
    if status == 407:
        return ServerRefused("the proxy wants a user and password (HTTP 407)", where=where,
                             remedy="write them into the environment's proxy: http_proxy=http://USER:PASSWORD@HOST:PORT")
    if status == 503:
        return ServerRefused(f"the server is not ready (HTTP 503): {words(server, answer)}", where=where,
                             remedy="wait until the model is loaded, then try again")
    if status == 429:
        return ServerRefused(f"the server limits requests (HTTP 429): {words(server, answer)}", where=where,
                             remedy="a limited server cannot be measured; lift the limit, or try later")
    if answer.is_page:
        title = re.search(r"<title[^>]*>([^<]*)", answer.text, re.IGNORECASE)
        shown = f" ({title[1].strip()[:60]})" if title else ""
        return ServerRefused(f"a web page{shown} came instead of JSON (HTTP {status})", where=where,
                             remedy="check host, port and path: this is no OpenAI-compatible API")
    if status == 404 and "model" in words(server, answer).lower():
        return ServerRefused(f"the server does not know the model: {words(server, answer)}", where=where,
                             remedy="name a model that it serves with --model")
    if status in (404, 405, 501):
        return ServerRefused(f"the server has no such path (HTTP {status}): {words(server, answer)}", where=where,
                             remedy="check the URL: rooftop needs /v1/chat/completions or /v1/completions under it")
    if status == 200:
        return ServerRefused(f"the answer is not what the API promises: {words(server, answer)}", where=where,
                             remedy="check that an OpenAI-compatible server runs there")
    return ServerRefused(f"HTTP {status}: {words(server, answer)}", where=where,
                         remedy="the server's log may tell more")


def words(server: Session, answer: Answer) -> str:
    """The server's own words for an error, one line, without secrets."""
    said = answer.json()
    if isinstance(said, dict):
        inner = said.get("error", said)
        if isinstance(inner, dict):
            inner = inner.get("message") or inner.get("detail") or inner
        said = inner
    text = said if isinstance(said, str) else json.dumps(said) if said is not None else answer.text
    line = " ".join(server.hide(text).split())
    return (line[:297] + "...") if len(line) > 300 else line or "no words with it"


def _unauthorized(server: Session, where: str, status: int) -> ServerRefused:
    if server.key_env:
        return ServerRefused(f"the server refused the key in {server.key_env} (HTTP {status})", where=where,
                             remedy=f"check the value of {server.key_env}, and that it may use this model")
    return ServerRefused(f"the server wants an API key (HTTP {status})", where=where,
                         remedy="put the key in an environment variable, say LLM_KEY, and add --api-key-env LLM_KEY")


def _fault(error: Exception, page: str, timeout_s: float, proxy: str) -> Failure:
    where = f"{page} through the proxy {proxy}" if proxy else page
    if isinstance(error, socket.gaierror | UnicodeError):
        host = urlsplit(proxy or page).hostname
        return ServerUnreachable(f"the name {host!r} cannot be resolved", where=where, remedy="check the host name")
    if isinstance(error, ConnectionRefusedError | FileNotFoundError):
        return ServerUnreachable("nothing listens there", where=where,
                                 remedy="start the server, or check host and port")
    if isinstance(error, TimeoutError):
        return ServerUnreachable(f"no full answer within {timeout_s:g} s", where=where,
                                 remedy="check that the server is up and not stalled, and that no firewall is between")
    if isinstance(error, UNREADABLE):
        return ServerRefused(f"what listens there does not speak HTTP ({unreadable(error)})", where=where,
                             remedy="check the port; if it speaks TLS, write https://")
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return ServerUnreachable("the connection was closed without an answer", where=where,
                                 remedy="see the server's log; if it speaks TLS, write https://")
    distrust: str | None = getattr(error, "verify_message", None)
    if distrust is not None:
        return ServerUnreachable(f"the TLS certificate is not trusted: {distrust}", where=where,
                                 remedy="set SSL_CERT_FILE to your authority's certificate, or turn the check off")
    reason: str | None = getattr(error, "reason", None)
    if reason is not None:
        return ServerUnreachable(f"TLS failed: {reason}", where=where,
                                 remedy="if the server speaks plain HTTP, write http:// instead of https://")
    return ServerUnreachable(f"the connection failed: {getattr(error, 'strerror', '') or error}", where=where,
                             remedy="check network, host and port")
