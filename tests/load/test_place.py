import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rooftop.errors import BadInput, ServerRefused, ServerUnreachable
from rooftop.load import http
from rooftop.load.endpoint import find_endpoints
from rooftop.load.job import Target
from rooftop.load.place import find_place, hide, proxy_for, reach
from tests.load.tiny import Tiny, serving

PROXY = "http://10.0.0.9:3128"
SECRET = "s3cr3t"


@pytest.mark.parametrize("proxy", [
    f"http://me:{SECRET}@10.0.0.9:99999", f"http://me:{SECRET}@10.0.0.9:port", f"socks5://me:{SECRET}@10.0.0.9",
    f"https://me:{SECRET}@10.0.0.9", f"http://me:{SECRET}@", "http://", "http://[::1",
])
def test_a_proxy_that_cannot_be_is_refused_without_its_password(proxy: str) -> None:
    with pytest.raises(BadInput) as caught:
        find_place("http://a.example", {"http_proxy": proxy})
    assert "proxy" in caught.value.what
    assert SECRET not in caught.value.what + caught.value.where + caught.value.remedy


@pytest.mark.parametrize("url", [
    f"me:{SECRET}@host:8000", f"http://me:{SECRET}@host:port", f"http://me:{SECRET}@host:99999",
    f"ftp://me:{SECRET}@host", f"http://me:{SECRET}@",
])
def test_a_url_with_a_password_is_refused_without_it(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        find_place(url, {})
    assert SECRET not in caught.value.what + caught.value.where + caught.value.remedy


def test_the_key_of_a_proxy_goes_to_the_proxy_alone() -> None:
    environment = {"http_proxy": f"me:{SECRET}%40@10.0.0.9", "https_proxy": f"http://me:{SECRET}@[fd00::9]:3128"}
    plain, tls = (find_place(f"{scheme}://a.example", environment) for scheme in ("http", "https"))
    assert plain.proxy == "http://10.0.0.9:1080"
    assert plain.proxy_headers == (("Proxy-Authorization", "Basic bWU6czNjcjN0QA=="),)
    assert plain.tunnel == b""
    assert tls.proxy == "http://[fd00::9]:3128"
    assert tls.proxy_headers == ()
    assert b"\r\nProxy-Authorization: Basic bWU6czNjcjN0\r\n\r\n" in tls.tunnel
    assert "bWU6" not in repr(plain) + repr(tls)


@pytest.mark.parametrize(("host", "skip", "proxy"), [
    ("10.1.2.3", "10.0.0.0/8", ""), ("11.1.2.3", "10.0.0.0/8", PROXY), ("fd00::5", "fd00::/8", ""),
    ("fd00::5", "fd00::5", ""), ("fd00::5", "[fd00::5]", ""), ("fe00::5", "fd00::/8", PROXY),
    ("a.example", "10.0.0.0/8", PROXY), ("10.1.2.3", "a/b", PROXY), ("a8", "::1", PROXY),
])
def test_networks_may_go_without_the_proxy(host: str, skip: str, proxy: str) -> None:
    assert proxy_for("http", host, 80, {"http_proxy": PROXY, "no_proxy": skip}) == proxy


KEY = "sk-0123456789"


@pytest.mark.parametrize(("header", "text", "hidden"), [
    (("Authorization", f"Bearer {KEY}"), f"bad key {KEY}, Bearer {KEY}!", "bad key ***, Bearer ***!"),
    (("X-Api-Key", KEY), f"your headers: X-Api-Key: {KEY}", "your headers: X-Api-Key: ***"),
    (("X-Api-Key", KEY), f"cut within {KEY[:9]}", "cut within ***"),
    (("Cookie", f"id={KEY}"), f"id={KEY}", "***"), (("X-Tenant", "me"), "not me", "not me"),
    (("X-Api-Key", ""), "words", "words"), (("X-Api-Key", KEY), "sk-", "sk-"),
])
def test_what_a_server_repeats_of_a_key_is_hidden(header: tuple[str, str], text: str, hidden: str) -> None:
    assert hide(text, [header]) == hidden


@contextmanager
def deaf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiny]:
    """A server whose name has two addresses, of which the first never answers to a connection."""
    with serving(Tiny()) as tiny, socket.create_server(("127.0.0.1", 0), backlog=0) as door:
        dead = door.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(dead)
        alive = ("127.0.0.1", int(tiny.url.rsplit(":", 1)[1]))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (dead, alive)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        monkeypatch.setattr("rooftop.load.place.QUICK_S", 0.05)
        yield tiny
        for filler in fillers:
            filler.close()


def test_an_address_that_is_dead_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with deaf(monkeypatch) as tiny:
        wire, _ = reach(find_place("http://two.example", {}), 60.0)
        with wire:
            assert wire.getpeername() == ("127.0.0.1", int(tiny.url.rsplit(":", 1)[1]))
        with http.Session("http://two.example", timeout_s=60.0) as session:
            assert session.get("/v1/models").status == 200


def test_a_unix_socket_with_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(0)
        first = socket.socket(socket.AF_UNIX)
        first.connect(path)
        with pytest.raises(TimeoutError):
            reach(find_place(f"unix://{path}", {}), 0.05)
        timer = threading.Timer(0.1, lambda: taken.append(door.accept()[0]))
        taken: list[socket.socket] = []
        timer.start()
        wire, _ = reach(find_place(f"unix://{path}", {}), 30.0)
        timer.join()
        for part in (wire, first, *taken):
            part.close()


@contextmanager
def proxying(answer: bytes, more: bytes = b"") -> Iterator[str]:
    """A proxy that answers this to everything, then `more` for ever."""
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            client, _ = door.accept()
            with client:
                client.sendall(answer)
                while more and not ended.wait(0.02):
                    try:
                        client.sendall(more)
                    except OSError:
                        break

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://me:{SECRET}@127.0.0.1:{door.getsockname()[1]}"
        ended.set()
        socket.create_connection(door.getsockname()).close()
        thread.join()


@pytest.mark.parametrize(("scheme", "answer", "more", "kind", "words"), [
    ("https", b"", b"X", ServerUnreachable, "no full answer within"),
    ("https", b"HTTP/1.1 407 No\r\n\r\n", b"", ServerUnreachable, "the proxy refused: HTTP/1.1 407"),
    ("http", b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", b"", ServerRefused, "wants a user and password"),
])
def test_a_proxy_that_is_no_help(monkeypatch: pytest.MonkeyPatch, scheme: str, answer: bytes, more: bytes,
                                 kind: Any, words: str) -> None:
    def ask() -> None:
        with http.Session(f"{scheme}://a.example", timeout_s=0.3) as session:
            raise http.refusal(session, "/x", session.get("/x"))

    with proxying(answer, more) as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", proxy)
        with pytest.raises(kind, match=words) as caught:
            ask()
    assert SECRET not in caught.value.what + caught.value.where + caught.value.remedy


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:{SECRET}@127.0.0.1:1")
    with pytest.raises(ServerUnreachable) as caught, http.Session("http://a.example") as session:
        session.get("/x")
    assert caught.value.where == "http://a.example/x through the proxy http://127.0.0.1:1"
    with pytest.raises(ServerUnreachable) as caught:
        find_endpoints(Target(("http://a.example",), "m"), {"http_proxy": f"http://me:{SECRET}@127.0.0.1:1"})
    assert caught.value.where == "http://127.0.0.1:1"
