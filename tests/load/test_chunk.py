from typing import Any

import pytest

from rooftop.load.chunk import Chunk, read_chunk


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


CASES = [
    ("role alone", delta(role="assistant", content=""), Chunk(has_choice=True)),
    ("role with null", delta(role="assistant", content=None), Chunk(has_choice=True)),
    ("text", delta(content="a"), Chunk(text="a", key=b"content", plain=True, has_choice=True)),
    ("reasoning", delta(reasoning_content="a", content=None),
     Chunk(text="a", key=b"reasoning_content", plain=True, has_choice=True)),
    ("reasoning, short name", delta(reasoning="a"), Chunk(text="a", key=b"reasoning", plain=True, has_choice=True)),
    ("tool call", delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{"}}]),
     Chunk(text="f{", has_choice=True)),
    ("usage alone", {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5,
                                              "prompt_tokens_details": {"cached_tokens": 2}}},
     Chunk(total_tokens=5, prompt_tokens=3, cached_tokens=2)),
    ("llama.cpp timings", {**delta(), "timings": {"cache_n": 4, "prompt_n": 6, "predicted_n": 9}},
     Chunk(has_choice=True, total_tokens=9, prompt_tokens=10, cached_tokens=4)),
    ("token ids", {"choices": [{"index": 0, "text": "ab", "token_ids": [1, 2]}]},
     Chunk(text="ab", key=b"text", has_choice=True, token_ids=2)),
    ("generate", {"text": "ab", "meta_info": {"completion_tokens": 2, "prompt_tokens": 3, "finish_reason": None}},
     Chunk(text="ab", cumulative=True, has_choice=True, total_tokens=2, prompt_tokens=3)),
    ("generate, aborted", {"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "no room"}}},
     Chunk(cumulative=True, has_choice=True, finish="abort", error="no room")),
    ("error", {"error": {"message": "no", "code": 500}}, Chunk(error="no")),
    ("error in words", {"error": "no"}, Chunk(error="no")),
    ("error of old servers", {"object": "error", "message": "no"}, Chunk(error="no")),
    ("not an object", [1], Chunk()),
    ("odd counts", {"choices": [], "usage": {"completion_tokens": -1, "prompt_tokens": True}}, Chunk()),
    ("counts that no store can hold", {"choices": [], "usage": {"completion_tokens": 2**63, "prompt_tokens": 2**31,
                                                                "prompt_tokens_details": {"cached_tokens": 10**30}}},
     Chunk()),
    ("odd choices", {"choices": [None, 3, {"delta": {"content": 5}}]}, Chunk(has_choice=True)),
]


@pytest.mark.parametrize(("value", "chunk"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_dialect_is_understood(value: Any, chunk: Chunk) -> None:
    assert read_chunk(value) == chunk
