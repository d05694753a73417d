"""Where the load goes: one server's address, looked up once, and the head of its requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from socket import gaierror
from typing import Any

from rooftop.domain.workload import Api
from rooftop.errors import BadInput, ServerUnreachable
from rooftop.load.job import Target
from rooftop.load.place import Place, find_place, reach, secret_values

ROUTES: dict[Api, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "generate": "/generate"}
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where connections of one server go and how its requests begin.

    `address` is that of the proxy where there is one; `tunnel` is what to ask it first, b"" where it needs none.
    """

    url: str
    host: str
    tls: bool
    family: int
    address: Any
    head: bytes
    tunnel: bytes = b""
    dns_s: float = 0.0


def find_endpoints(target: Target, environment: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Look up each server of the target once.  Raises BadInput (URL, missing key), ServerUnreachable (no such host)."""
    headers = list(target.headers)
    headers += secret_values(target.secret_headers, environment)
    for name, value in headers:
        if any(mark in name + value for mark in "\r\n\0"):
            raise BadInput(f"the header {name!r} has a line end inside")
    return tuple(_find_endpoint(find_place(url, environment), target, headers) for url in target.urls)


def _find_endpoint(place: Place, target: Target, headers: list[tuple[str, str]]) -> Endpoint:
    path = place.path.removesuffix("/v1") + ROUTES[target.api]
    lines = [f"POST {place.origin}{path} HTTP/1.1", f"Host: {place.authority}", "Content-Type: application/json",
             "Accept: text/event-stream", "User-Agent: rooftop"]
    own = {name.lower() for name, _ in headers}
    lines = [line for line in lines if line.split(":")[0].lower() not in own]
    lines += [f"{name}: {value}" for name, value in (*headers, *place.proxy_headers)]
    where = place.proxy or place.url
    try:
        found, dns_s = reach(place, PATIENCE_S)
    except (gaierror, UnicodeError) as error:
        raise ServerUnreachable(f"no address is known for {place.host!r}", where=where,
                                remedy="check the name, and that this machine can resolve it") from error
    except OSError as error:
        there = place.socket or place.authority
        raise ServerUnreachable(f"nothing answers at {there}: {error.strerror or error}", where=where,
                                remedy="start the server, or check the address and the firewall") from error
    with found:
        address = place.socket or found.getpeername()
        return Endpoint(place.url, place.host, place.tls, found.family, address,
                        "\r\n".join(lines).encode("latin-1") + b"\r\n", tunnel=place.tunnel, dns_s=dns_s)
