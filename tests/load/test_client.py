import pytest

from rooftop.errors import BadInput, ServerUnreachable
from rooftop.load.endpoint import find_endpoints
from rooftop.load.job import Target
from rooftop.load.place import proxy_for
from rooftop.load.truth import Truth

PROXY = "http://10.0.0.9:3128"


@pytest.mark.parametrize(("scheme", "host", "environment", "proxy"), [
    ("http", "a.example", {}, ""),
    ("http", "a.example", {"http_proxy": PROXY}, PROXY),
    ("http", "a.example", {"HTTP_PROXY": PROXY}, ""),
    ("https", "a.example", {"HTTPS_PROXY": PROXY}, PROXY),
    ("https", "a.example", {"http_proxy": PROXY}, ""),
    ("http", "a.example", {"ALL_PROXY": "10.0.0.9:3128"}, PROXY),
    ("http", "localhost", {"http_proxy": PROXY}, ""),
    ("http", "127.0.0.5", {"http_proxy": PROXY}, ""),
    ("http", "::1", {"http_proxy": PROXY}, ""),
    ("http", "a.example", {"http_proxy": PROXY, "NO_PROXY": "*"}, ""),
    ("http", "a.example", {"http_proxy": PROXY, "no_proxy": "b.org, example"}, ""),
    ("http", "a.example", {"http_proxy": PROXY, "no_proxy": ".example"}, ""),
    ("http", "a.example", {"http_proxy": PROXY, "no_proxy": "a.example:81"}, PROXY),
    ("http", "a.example", {"http_proxy": PROXY, "no_proxy": "a.example:80"}, ""),
    ("http", "notexample", {"http_proxy": PROXY, "no_proxy": "example"}, PROXY),
])
def test_proxies_are_chosen_as_curl_does(scheme: str, host: str, environment: dict[str, str], proxy: str) -> None:
    assert proxy_for(scheme, host, 80, environment) == proxy


def test_a_socks_proxy_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="socks5"):
        proxy_for("http", "a.example", 80, {"http_proxy": "socks5://10.0.0.9"})


@pytest.mark.parametrize("url", ["ftp://a", "a:80", "http://", "http://a:99999999", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        find_endpoints(Target((url,), "m"), {})


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(ServerUnreachable, match=r"nowhere\.invalid"):
        find_endpoints(Target(("http://nowhere.invalid",), "m"), {})


def test_request_heads_carry_path_host_and_headers() -> None:
    with Truth() as server:
        target = Target((server.url + "/v1/",), "m", headers=(("X-Tenant", "me"), ("user-agent", "mine")),
                        secret_headers=(("Authorization", "KEY"),))
        head = find_endpoints(target, {"KEY": "k"})[0].head.decode()
        assert head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
        assert f"\r\nHost: 127.0.0.1:{server.port}\r\n" in head
        assert "\r\nX-Tenant: me\r\n" in head
        assert "\r\nAuthorization: Bearer k\r\n" in head
        assert "User-Agent: rooftop" not in head
        head = find_endpoints(Target((server.url,), "m", api="generate"), {})[0].head.decode()
        assert head.startswith("POST /generate HTTP/1.1\r\n")
        with pytest.raises(BadInput, match="KEY"):
            find_endpoints(target, {})
        with pytest.raises(BadInput, match="line end"):
            find_endpoints(Target((server.url,), "m", headers=(("a", "b\r\nc: d"),)), {})
