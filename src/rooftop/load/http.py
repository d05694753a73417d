"""Small blocking HTTP for probing, tokenizing and metrics pages; nothing here is timed.

Connections are direct: no proxy is ever used, because the load client uses none and a probe must see what it will see.
"""

import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from rooftop.errors import BadInput, Failure, ServerRefused, ServerUnreachable
from rooftop.load.client import secret_values
from rooftop.load.job import Target

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
        self._secrets = secret_values(secret_headers)
        self._headers = {"Accept": "*/*", **dict(headers), **dict(self._secrets)}
        parts = urlsplit(self.url)
        self._prefix = parts.path
        if parts.scheme == "https":
            context = ssl.create_default_context()
            if not verify_tls:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._wire: http.client.HTTPConnection = http.client.HTTPSConnection(parts.hostname or "", parts.port,
                                                                                 context=context)
        else:
            self._wire = http.client.HTTPConnection(parts.hostname or "", parts.port)

    def get(self, path: str) -> Answer:
        """GET `path`; any status is an Answer.  Raises ServerUnreachable, or ServerRefused for a broken answer."""
        return self._exchange("GET", path, None, self.timeout_s)

    def post(self, path: str, body: object, *, timeout_s: float | None = None) -> Answer:
        """POST `body` as JSON; raises as `get`."""
        data = json.dumps(body).encode()
        return self._exchange("POST", path, data, timeout_s or self.timeout_s)

    def close(self) -> None:
        """Close the connection; the next request would open it anew."""
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def hide(self, text: str) -> str:
        """`text` without any secret that a server may have repeated in it."""
        for _, value in self._secrets:
            text = text.replace(value.removeprefix("Bearer "), "***")
        return text

    def _exchange(self, method: str, path: str, data: bytes | None, timeout_s: float) -> Answer:
        while True:
            kept = self._wire.sock is not None
            try:
                return self._once(method, path, data, timeout_s)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not (kept and isinstance(error, ConnectionResetError | BrokenPipeError)):
                    raise _fault(error, self.url + path, timeout_s) from error

    def _once(self, method: str, path: str, data: bytes | None, timeout_s: float) -> Answer:
        until = time.monotonic() + timeout_s
        self._wire.timeout = timeout_s
        if self._wire.sock is not None:
            self._wire.sock.settimeout(timeout_s)
        headers = self._headers if data is None else {**self._headers, "Content-Type": "application/json"}
        self._wire.request(method, self._prefix + path, data, headers)
        with self._wire.getresponse() as response:
            body = _read(response, until)
            pairs = tuple((name.lower(), value) for name, value in response.getheaders())
        return Answer(response.status, pairs, body)


def _read(response: http.client.HTTPResponse, until: float) -> bytes:
    """The whole body.  Raises IncompleteRead for a cut one, TimeoutError past `until` on the monotonic clock."""
    parts, size = [], 0
    while part := response.read1(65536):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise http.client.LineTooLong("answer")
        if time.monotonic() > until:
            raise TimeoutError("the answer did not end")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    response.read()
    return b"".join(parts)


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


def check_url(url: str) -> None:
    """Raise BadInput, with the remedy, unless `url` is http or https with a host and no secrets in it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadInput(f"not a URL: {error}", where=url, remedy="write it as http://host:port") from error
    if parts.username is not None or parts.password is not None:
        raise BadInput("the URL holds a user name or password", remedy="put the key in an environment variable and "
                       "name it with --api-key-env")
    if parts.scheme not in ("http", "https"):
        bare = url.split("://")[-1]
        raise BadInput("the URL must begin with http:// or https://", where=url, remedy=f"try http://{bare}")
    if not parts.hostname or port == 0:
        raise BadInput("the URL names no host" if port != 0 else "port 0 is no port", where=url,
                       remedy="write it as http://host:port")
    if parts.query or parts.fragment or re.search(r"[\s\x00-\x1f]", url):
        raise BadInput("the URL must hold no query, no fragment and no blanks", where=url)


def refusal(server: Session, path: str, answer: Answer) -> ServerRefused:
    """The error for an answer that is not the one asked for: why, and what to do."""
    where, status = server.url + path, answer.status
    if status in (401, 403):
        return _unauthorized(server, where, status)
    if 300 <= status < 400:
        return ServerRefused(f"the server redirects to {answer.header('location') or 'somewhere else'}", where=where,
                             remedy="give that URL instead")
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


def _fault(error: Exception, where: str, timeout_s: float) -> Failure:
    host = urlsplit(where).hostname
    if isinstance(error, socket.gaierror):
        return ServerUnreachable(f"the name {host!r} cannot be resolved", where=where, remedy="check the host name")
    if isinstance(error, ConnectionRefusedError):
        return ServerUnreachable("nothing listens there", where=where,
                                 remedy="start the server, or check host and port")
    if isinstance(error, TimeoutError):
        return ServerUnreachable(f"no full answer within {timeout_s:g} s", where=where,
                                 remedy="check that the server is up and not stalled, and that no firewall is between")
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServerUnreachable(f"the TLS certificate is not trusted: {error.verify_message}", where=where,
                                 remedy="set SSL_CERT_FILE to your authority's certificate, or turn the check off")
    if isinstance(error, ssl.SSLError):
        return ServerUnreachable(f"TLS failed: {error.reason or error}", where=where,
                                 remedy="if the server speaks plain HTTP, write http:// instead of https://")
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return ServerUnreachable("the connection was closed without an answer", where=where,
                                 remedy="see the server's log; if it speaks TLS, write https://")
    if isinstance(error, http.client.IncompleteRead):
        return ServerRefused("the answer broke off", where=where, remedy="see the server's log, and any proxy between")
    if isinstance(error, http.client.LineTooLong):
        return ServerRefused("the answer does not end", where=where, remedy="check the path: no page is that long")
    if isinstance(error, http.client.HTTPException):
        return ServerRefused(f"what listens there does not speak HTTP ({type(error).__name__})", where=where,
                             remedy="check the port; if it speaks TLS, write https://")
    return ServerUnreachable(f"the connection failed: {error.strerror or error}" if isinstance(error, OSError)
                             else str(error), where=where, remedy="check network, host and port")
