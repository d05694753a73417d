"""One JSON chunk of a streamed answer, in any of the dialects that engines speak."""

from dataclasses import dataclass
from typing import Any

MOST_TOKENS = 2**31 - 1
_TEXTS = ("content", "reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one chunk says.

    `text`: the text it carries (tool calls as their arguments).  `cumulative`: the text is the whole answer so far.
    `plain`: nothing but the text of one string field named `key` tells it from its neighbours.  `token_ids`: how many
    ids it lists.  `total_tokens`: output tokens so far, by the server.  `has_choice`: it is part of the answer, not
    only its bill.
    """

    text: str = ""
    key: bytes = b""
    plain: bool = False
    cumulative: bool = False
    has_choice: bool = False
    token_ids: int = 0
    finish: str = ""
    total_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    error: str = ""


def read_chunk(value: Any) -> Chunk:
    """A decoded JSON value as a Chunk; what it does not know says nothing."""
    if not isinstance(value, dict):
        return Chunk()
    if value.get("error"):
        return Chunk(error=_words(value["error"]))
    if isinstance(value.get("meta_info"), dict):
        return _read_generate(value)
    if isinstance(value.get("choices"), list):
        return _read_choices(value)
    if value.get("object") == "error" or "detail" in value or set(value) == {"message"}:
        return Chunk(error=_words(value))
    return Chunk()


def _words(error: Any) -> str:
    if isinstance(error, dict):
        for name in ("message", "detail", "error"):
            if error.get(name):
                return _words(error[name])
    return str(error)[:500]


def _read_choices(value: dict[str, Any]) -> Chunk:
    """OpenAI chat and completions, with the extra fields of vLLM, SGLang and llama.cpp."""
    texts, key, finish, ids = [], b"", "", 0
    choices = [choice for choice in value["choices"] if isinstance(choice, dict)]
    for choice in choices:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            for name in _TEXTS:
                if isinstance(delta.get(name), str) and delta[name]:
                    texts.append(delta[name])
                    key = name.encode()
            texts.extend(_tool_words(delta))
        elif isinstance(choice.get("text"), str) and choice["text"]:
            texts.append(choice["text"])
            key = b"text"
        if isinstance(choice.get("finish_reason"), str):
            finish = choice["finish_reason"]
        if isinstance(choice.get("token_ids"), list):
            ids += len(choice["token_ids"])
    total, prompt, cached = _bill(value)
    plain = bool(len(texts) == 1 and key and len(choices) == 1 and not finish and not ids
                 and total is None and prompt is None and cached is None)
    return Chunk(text="".join(texts), key=key, plain=plain, has_choice=bool(choices), token_ids=ids, finish=finish,
                 total_tokens=total, prompt_tokens=prompt, cached_tokens=cached)


def _tool_words(delta: dict[str, Any]) -> list[str]:
    """The words of tool-call deltas; a name counts as well as arguments."""
    calls = delta.get("tool_calls")
    calls = [*calls] if isinstance(calls, list) else []
    functions = [call.get("function") for call in calls if isinstance(call, dict)] + [delta.get("function_call")]
    words = []
    for function in functions:
        if isinstance(function, dict):
            words += [function[name] for name in ("name", "arguments")
                      if isinstance(function.get(name), str) and function[name]]
    return words


def _bill(value: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Output, prompt and cached tokens as the server counts them, from `usage` or llama.cpp's `timings`."""
    usage, timings = value.get("usage"), value.get("timings")
    if isinstance(usage, dict):
        details = usage.get("prompt_tokens_details")
        cached = _number(details.get("cached_tokens")) if isinstance(details, dict) else None
        return _number(usage.get("completion_tokens")), _number(usage.get("prompt_tokens")), cached
    if isinstance(timings, dict):
        fresh, cached = _number(timings.get("prompt_n")), _number(timings.get("cache_n"))
        prompt = fresh + cached if fresh is not None and cached is not None else None
        return _number(timings.get("predicted_n")), prompt, cached
    return None, None, None


def _read_generate(value: dict[str, Any]) -> Chunk:
    """SGLang's own route: the whole text so far (or a part of it), and counters with each chunk."""
    meta = value["meta_info"]
    text = value.get("text")
    reason = meta.get("finish_reason")
    finish = str(reason.get("type", "")) if isinstance(reason, dict) else str(reason or "")
    error = ""
    if finish == "abort":
        error = str(reason.get("message", "aborted by the server")) if isinstance(reason, dict) else "aborted"
    text = text if isinstance(text, str) else ""
    return Chunk(text=text, cumulative=True, has_choice=True, finish=finish, error=error,
                 total_tokens=_number(meta.get("completion_tokens")), prompt_tokens=_number(meta.get("prompt_tokens")),
                 cached_tokens=_number(meta.get("cached_tokens")))


def _number(value: Any) -> int | None:
    """A count of tokens; None for anything that cannot be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None
