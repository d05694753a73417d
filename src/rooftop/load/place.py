"""Where a URL leads: host and port or a Unix socket, through which proxy, with which keys."""

import binascii
import errno
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from rooftop.errors import BadInput

UNIX = "unix://"
LEAST_SECRET = 8
PROXY_PORT = 1080
QUICK_S = 1.0
_SECRET = re.compile(r"auth|key|token|secret|cookie|password|session", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where connections for a URL go.

    `path` is the base path before that of an API.  `proxy` is a proxy's URL, "" for none, without the user and password
    that it may have had, which are `proxy_key`; `socket` the path of a Unix socket, "" for none.
    """

    url: str
    tls: bool
    host: str
    port: int
    path: str = ""
    proxy: str = ""
    socket: str = ""
    proxy_key: str = field(default="", repr=False)

    @property
    def named(self) -> str:
        """The host as it stands in an authority."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def authority(self) -> str:
        """What the Host header says: no port where it is the usual one."""
        return self.named if self.port == (443 if self.tls else 80) else f"{self.named}:{self.port}"

    @property
    def tunnel(self) -> bytes:
        """The request for a tunnel where TLS goes through a proxy, else b""."""
        if not (self.proxy and self.tls):
            return b""
        there = f"{self.named}:{self.port}"
        key = f"Proxy-Authorization: {self.proxy_key}\r\n" if self.proxy_key else ""
        return f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{key}\r\n".encode("latin-1")

    @property
    def proxy_headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of each request for the proxy alone: its key, where no tunnel keeps it from seeing them."""
        return (("Proxy-Authorization", self.proxy_key),) if self.proxy_key and not self.tls else ()

    @property
    def origin(self) -> str:
        """What stands before the path in a request line: nothing, or scheme and authority for a proxy without TLS."""
        return f"http://{self.authority}" if self.proxy and not self.tls else ""


def find_place(url: str, environment: Mapping[str, str]) -> Place:
    """Raises BadInput for what is no http, https or unix URL, and for a proxy that cannot be used."""
    check_url(url)
    if url.startswith(UNIX):
        return Place(url, False, "localhost", 80, socket=url.removeprefix(UNIX))
    parts = urlsplit(url)
    tls, host = parts.scheme == "https", parts.hostname or ""
    port = parts.port or (443 if tls else 80)
    proxy, key = _without_key(proxy_for(parts.scheme, host, port, environment))
    return Place(url, tls, host, port, parts.path.rstrip("/"), proxy, proxy_key=key)


def _without_key(proxy: str) -> tuple[str, str]:
    """The URL of a proxy, checked, without its user and password, and the header value that they make.

    Raises BadInput.
    """
    if not proxy:
        return "", ""
    remedy = "write the environment's proxy as http://host:port"
    try:
        parts = urlsplit(proxy)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadInput("the proxy's URL is none", where=shown(proxy), remedy=remedy) from error
    if not host:
        raise BadInput("the proxy's URL names no host", where=shown(proxy), remedy=remedy)
    key = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        key = "Basic " + binascii.b2a_base64(pair.encode(), newline=False).decode()
    return f"http://{f'[{host}]' if ':' in host else host}:{port or PROXY_PORT}", key


def shown(url: str) -> str:
    """A URL as it may be shown: without user and password."""
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}***@{rest.rpartition('@')[2]}" if "@" in rest else url


def check_url(url: str) -> None:
    """Raise BadInput, with the remedy, unless `url` is http, https or unix, names a place, and holds no secret."""
    if url.startswith(UNIX):
        _check_socket(url)
        return
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        said = "its port is no number from 0 to 65535" if "Port" in str(error) else str(error)
        raise BadInput(f"not a URL: {shown(said)}", where=shown(url), remedy="write it as http://host:port") from error
    if parts.username is not None or parts.password is not None:
        raise BadInput("the URL holds a user name or password", remedy="put the key in an environment variable and "
                       "name it with --api-key-env")
    if parts.scheme not in ("http", "https"):
        bare = shown(url).split("://")[-1]
        raise BadInput("the URL must begin with http://, https:// or unix://", where=shown(url),
                       remedy=f"try http://{bare}")
    if not parts.hostname or port == 0:
        raise BadInput("the URL names no host" if port != 0 else "port 0 is no port", where=url,
                       remedy="write it as http://host:port")
    if parts.query or parts.fragment or re.search(r"[\s\x00-\x1f]", url):
        raise BadInput("the URL must hold no query, no fragment and no blanks", where=url)


def _check_socket(url: str) -> None:
    path = url.removeprefix(UNIX)
    if not path.startswith("/") or "\0" in path:
        raise BadInput("a Unix socket is named by its whole path", where=url, remedy="write it as unix:///run/llm.sock")
    if len(os.fsencode(path)) > 107:
        raise BadInput("the path of a Unix socket has at most 107 bytes", where=url, remedy="use a shorter path")


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


def hide(text: str, headers: Sequence[tuple[str, str]]) -> str:
    """`text` without the values of headers that are secret by their name, which a server may have repeated in it.

    Nor does it end in the first part of one, where it was cut.
    """
    for name, value in headers:
        if not _SECRET.search(name):
            continue
        for part in filter(None, (value.partition(" ")[2], value)):
            text = text.replace(part, "***")
            cut = next((length for length in range(min(len(part), len(text)), LEAST_SECRET - 1, -1)
                        if text.endswith(part[:length])), 0)
            text = text[:-cut] + "***" if cut else text
    return text


def reach(place: Place, timeout_s: float) -> tuple[socket.socket, float]:
    """A connected blocking socket (to the proxy where there is one), and the seconds that the name took.

    The first address that takes the connection counts; where there are several, each gets a second before any gets
    more, so that a dead one does not use up the time.  Raises OSError (socket.gaierror is one), UnicodeError.
    """
    if place.socket:
        return _connected(socket.AF_UNIX, place.socket, timeout_s), 0.0
    by = urlsplit(place.proxy) if place.proxy else None
    host, port = (by.hostname or "", by.port or PROXY_PORT) if by else (place.host, place.port)
    before = time.monotonic()
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    dns_s = time.monotonic() - before
    fault: OSError = ConnectionRefusedError()
    for patience_s in (QUICK_S, timeout_s) if len(found) > 1 else (timeout_s,):
        for family, _, _, _, address in found:
            left_s = before + timeout_s - time.monotonic()
            try:
                return _connected(family, address, max(0.001, min(patience_s, left_s))), dns_s
            except OSError as error:
                fault = error
    raise fault


def _connected(family: int, address: Any, timeout_s: float) -> socket.socket:
    with ExitStack() as stack:
        made = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        until = time.monotonic() + timeout_s
        made.settimeout(timeout_s)
        while (code := made.connect_ex(address)) == errno.EAGAIN and family == socket.AF_UNIX:
            if time.monotonic() > until:
                raise TimeoutError(code, "its queue of connections stays full")
            time.sleep(0.01)
        if code == errno.EAGAIN:
            raise TimeoutError(code, "no answer to the connection")
        if code:
            raise OSError(code, os.strerror(code))
        stack.pop_all()
    return made


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
        if _is_within(host, entry.strip()):
            return ""
    if proxy and "://" not in proxy:
        proxy = "http://" + proxy
    if proxy and not proxy.startswith("http://"):
        raise BadInput(f"the proxy {shown(proxy)!r} is not an http proxy",
                       remedy="name an http proxy, or add the server to NO_PROXY")
    return proxy


def _is_within(host: str, entry: str) -> bool:
    """Whether an address is that of a NO_PROXY entry, or in its network (10.0.0.0/8, fd00::/8)."""
    if not (":" in host or host[-1:].isdigit()) or not (":" in entry or "/" in entry):
        return False
    import ipaddress  # takes 3 ms, which a start without such an entry saves

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    for family, local in ((socket.AF_INET, b"\x7f"), (socket.AF_INET6, b"\0" * 15 + b"\1")):
        try:
            return socket.inet_pton(family, host).startswith(local)
        except OSError:
            continue
    return False
