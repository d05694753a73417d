import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rooftop.errors import BadInput, ServerRefused, ServerUnreachable
from rooftop.load import http
from rooftop.load.place import check_url, secret_values
from tests.load.tiny import Tiny, serving

PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that treats each connection as `serve` does, one after another."""
    door = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                client, _ = door.accept()
            except OSError:
                return
            with client:
                try:
                    serve(client)
                except OSError:
                    continue

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        door.shutdown(socket.SHUT_RDWR)
        door.close()
        thread.join(5)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


@pytest.mark.parametrize(("url", "words"), [
    ("localhost:8000", "must begin with http"),
    ("ftp://host", "must begin with http"),
    ("http://", "names no host"),
    ("http://host:70000", "not a URL"),
    ("http://host:port", "not a URL"),
    ("http://host:0", "no port"),
    ("http://me:secret@host", "user name or password"),
    ("http://host/v1?a=b", "no query"),
    ("http://ho st", "no blanks"),
])
def test_a_wrong_url_is_refused(url: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        check_url(url)
    assert "secret" not in f"{caught.value.what}{caught.value.where}{caught.value.remedy}"


@pytest.mark.parametrize("url", ["http://localhost:8000", "https://host/a/v1", "http://[::1]:80"])
def test_a_good_url_passes(url: str) -> None:
    check_url(url)


def test_a_secret_is_read_at_the_last_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", " abc\n")
    pairs = secret_values([("Authorization", "KEY"), ("X-Key", "KEY")])
    assert pairs == (("Authorization", "Bearer abc"), ("X-Key", "abc"))


@pytest.mark.parametrize("value", [None, "", " ", "sk-line\nbreak", "sk-naïve"])
def test_a_useless_secret_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("KEY", value)
    with pytest.raises(BadInput, match="KEY") as caught:
        secret_values([("Authorization", "KEY")])
    assert "sk-" not in f"{caught.value.what}{caught.value.remedy}"


def test_a_connection_is_kept() -> None:
    connections = []

    def serve(client: socket.socket) -> None:
        connections.append(client)
        while client.recv(4096):
            client.sendall(PAGE)

    with listening(serve) as url, http.Session(url) as server:
        assert [server.get("/a").text, server.post("/b", {}).text] == ["hi", "hi"]
    assert len(connections) == 1


def test_a_kept_connection_that_the_server_closed_is_opened_anew() -> None:
    def serve(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(PAGE)

    with listening(serve) as url, http.Session(url) as server:
        assert [server.get("/a").text, server.get("/b").text] == ["hi", "hi"]


def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    with serving(Tiny()) as tiny:
        assert http.fetch(tiny.url + "/v1/models").status == 200


def silent(client: socket.socket) -> None:
    while client.recv(4096):
        pass


def dribbling(client: socket.socket) -> None:
    client.recv(4096)
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        client.sendall(b"x")
        time.sleep(0.01)


def broken_off(client: socket.socket) -> None:
    client.recv(4096)
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhi")


def cut_chunks(client: socket.socket) -> None:
    client.recv(4096)
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")


def hanging_up(client: socket.socket) -> None:
    client.recv(4096)


def speaking_smtp(client: socket.socket) -> None:
    client.sendall(b"220 mail.example ESMTP\r\n")
    client.recv(4096)


@pytest.mark.parametrize(("serve", "kind", "words"), [
    (silent, ServerUnreachable, "no full answer within 0.2 s"),
    (dribbling, ServerUnreachable, "no full answer within 0.2 s"),
    (broken_off, ServerRefused, "broke off"),
    (cut_chunks, ServerRefused, "broke off"),
    (hanging_up, ServerUnreachable, "closed without an answer"),
    (speaking_smtp, ServerRefused, "does not speak HTTP"),
])
def test_a_bad_server_is_named(serve: Callable[[socket.socket], None], kind: type[Exception], words: str) -> None:
    with listening(serve) as url, pytest.raises(kind, match=words) as caught:
        http.fetch(url + "/x", timeout_s=0.2)
    assert isinstance(caught.value, ServerUnreachable | ServerRefused)
    assert caught.value.where == url + "/x"
    assert caught.value.remedy


def test_nothing_listens() -> None:
    with pytest.raises(ServerUnreachable, match="nothing listens"):
        http.fetch(f"http://127.0.0.1:{free_port()}/x")


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(ServerUnreachable, match=r"'nowhere.invalid' cannot be resolved"):
        http.fetch("http://nowhere.invalid/x")


def test_tls_against_a_plain_server() -> None:
    with serving(Tiny()) as tiny, pytest.raises(ServerUnreachable, match="TLS failed") as caught:
        http.fetch(tiny.url.replace("http://", "https://"), timeout_s=2)
    assert "http://" in caught.value.remedy


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_certificate_of_no_authority(tmp_path: Path) -> None:
    key, page = tmp_path / "key.pem", tmp_path / "page.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", page, "-days", "2", "-subj", "/CN=localhost"],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(page, key)

    def serve(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as wrapped:
            wrapped.recv(4096)
            wrapped.sendall(PAGE)

    with listening(serve) as url:
        secure = url.replace("http://", "https://")
        with pytest.raises(ServerUnreachable, match=r"certificate is not trusted: self.signed"):
            http.fetch(secure, timeout_s=5)
        with http.Session(secure, verify_tls=False, timeout_s=5) as server:
            assert server.get("/").text == "hi"
        with pytest.raises(ServerUnreachable, match="closed without an answer"):
            http.fetch(url, timeout_s=5)


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 10)
    with listening(dribbling) as url, pytest.raises(ServerRefused, match="does not end"):
        http.fetch(url, timeout_s=5)


@pytest.mark.parametrize(("body", "words"), [
    (b'{"error": {"message": "too  long\\n"}}', "too long"),
    (b'{"error": "no"}', "no"),
    (b'{"detail": "bad"}', "bad"),
    (b"plain", "plain"),
    (b"", "no words with it"),
    (b'{"message": "' + b"x" * 400 + b'"}', "..."),
])
def test_words_of_a_server(body: bytes, words: str) -> None:
    said = http.words(http.Session("http://host"), http.Answer(400, (), body))
    assert said == words or (words == "..." and said.endswith("...") and len(said) == 300)


def test_a_page_is_asked_for_with_its_query() -> None:
    asked = []

    def serve(client: socket.socket) -> None:
        asked.append(client.recv(4096).split(b"\r\n")[0])
        client.sendall(PAGE)

    with listening(serve) as url:
        assert http.fetch(f"{url}/info?format=json&more=a%20b").text == "hi"
    assert asked == [b"GET /info?format=json&more=a%20b HTTP/1.1"]


@pytest.mark.parametrize(("answer", "words"), [
    (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nxx", "another protocol"),
    (b"HTTP/1.1 200 OK\r\nContent-Ty", "broke off"),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX", "broke off"),
])
def test_an_answer_that_is_none(answer: bytes, words: str) -> None:
    def serve(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(answer)

    with listening(serve) as url, http.Session(url) as server, pytest.raises(ServerRefused, match=words):
        server.get("/x")


def test_a_redirect_to_a_long_place_is_short_to_read() -> None:
    answer = http.Answer(302, (("location", "http://x/" + "a" * 10_000),), b"")
    assert len(http.refusal(http.Session("http://127.0.0.1:1"), "/", answer).what) < 300
