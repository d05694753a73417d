"""Does it decode: a first streamed token, and the greedy texts of fixed prompts."""

import http.client
import json
import socket
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from rooftop.errors import RooftopError, ServerRefused, ServerUnreachable
from rooftop.load.http import Session, words

PROMPTS = (
    "The capital of France is",
    "Water is made of hydrogen and",
    "def fibonacci(n):",
    "In the year 1969, the first man on the Moon",
)
_FIRST_TOKENS = 8
_GREEDY_TOKENS = 16
_LINE_LIMIT = 1 << 20


def first_token(url: str, model: str, *, timeout_s: float) -> tuple[str, float]:
    """The text of a short streamed completion and when its first came (`time.monotonic`); it is read to its end.

    `timeout_s` is the longest silence.  Raises ServerRefused where it ends without text, ServerUnreachable where the
    connection breaks or stands still.
    """
    parts = urlsplit(url)
    wire = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    where = f"{url}/v1/completions"
    body = {"model": model, "prompt": PROMPTS[0], "max_tokens": _FIRST_TOKENS, "temperature": 0, "stream": True}
    try:
        wire.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = wire.getresponse()
        if answer.status != 200:
            said = " ".join(answer.read(2000).decode("utf-8", "replace").split())
            raise ServerRefused(f"the first completion was answered with HTTP {answer.status}: {said[:300]}",
                                where=where)
        text, at = _stream_text(answer, where)
    except TimeoutError as error:
        raise ServerUnreachable(f"the first completion stood still for {timeout_s:g} s", where=where) from error
    except (OSError, http.client.HTTPException, socket.gaierror) as error:
        raise ServerUnreachable(f"the first completion broke off: {error or type(error).__name__}",
                                where=where) from error
    finally:
        wire.close()
    if not text:
        raise ServerRefused("the first completion ended without a token", where=where)
    return text, at


def _stream_text(answer: http.client.HTTPResponse, where: str) -> tuple[str, float]:
    text, at = "", 0.0
    while line := answer.readline(_LINE_LIMIT):
        data = line.strip().removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        try:
            event = json.loads(data)
            choices = event.get("choices") or ()
            text += "".join(choice.get("text") or "" for choice in choices)
            at = at or (time.monotonic() if text else 0.0)
        except (ValueError, AttributeError) as error:
            raise ServerRefused(f"the first completion's stream is not JSON: {data[:100]!r}", where=where) from error
        if "error" in event:
            raise ServerRefused(f"the first completion failed: {json.dumps(event['error'])[:300]}", where=where)
    return text, at


Margins = tuple[tuple[str, float], ...]


def greedy(urls: Sequence[str], model: str, *, timeout_s: float) -> tuple[tuple[str, ...], tuple[Margins, ...]]:
    """The text of each fixed prompt at temperature 0, prompts dealt out over the replicas, and the margins of each.

    Margins: each token of the text and by how many nats it led the next best.  They are empty where the server gives no
    logprobs for all texts; all is empty where not all prompts are answered within `timeout_s`: a comparison needs all.
    """
    texts, margins = [], []
    until = time.monotonic() + timeout_s
    for number, prompt in enumerate(PROMPTS):
        with Session(urls[number % len(urls)], timeout_s=max(0.1, until - time.monotonic())) as server:
            body = {"model": model, "prompt": prompt, "max_tokens": _GREEDY_TOKENS, "temperature": 0, "seed": 0}
            try:
                answer = server.post("/v1/completions", body | {"logprobs": 2})
                if answer.status != 200:
                    answer = server.post("/v1/completions", body)
                if answer.status != 200:
                    raise ServerRefused(words(server, answer))
                choice = answer.json()["choices"][0]
                texts.append(str(choice["text"]))
            except (RooftopError, LookupError, TypeError):
                return (), ()
        margins.append(_margins(choice.get("logprobs")))
    return tuple(texts), tuple(margins) if all(margins) else ()


def _margins(logprobs: Any) -> Margins:
    """Tokens and margins of a choice, as vLLM and SGLang (lists side by side) or llama-server (`content`) give them."""
    try:
        if "content" in logprobs:
            steps = [(step["token"], [one["logprob"] for one in step["top_logprobs"]]) for step in logprobs["content"]]
        else:
            pairs = zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True)
            steps = [(token, list(top.values())) for token, top in pairs]
        best = [(str(token), sorted(map(float, top), reverse=True)) for token, top in steps]
    except (TypeError, LookupError, ValueError, AttributeError):
        return ()
    return tuple((token, top[0] - top[1]) for token, top in best) if all(len(top) > 1 for _, top in best) else ()
