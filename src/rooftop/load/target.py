"""Probes a server: which model, which API, which request fields it takes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooftop.domain.workload import Api
from rooftop.errors import BadInput, ServerRefused
from rooftop.load import http, tokenizer
from rooftop.load.chunk import read_chunk
from rooftop.load.endpoint import ROUTES
from rooftop.load.job import Target
from rooftop.load.place import UNIX, check_url

FIELDS = {"stream_usage": "include_usage", "usage_per_chunk": "continuous_usage_stats", "token_ids": "return_token_ids",
          "ignore_eos": "ignore_eos", "min_tokens": "min_tokens"}
PROBE_TOKENS = 4
MOST_NAMED = 20
FRAMING = ("content-length", "transfer-encoding", "content-type", "expect", "upgrade")
LONGEST_NAME = 4096
REFUSED = (400, 422, 500)
NO_ROUTE = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one small stream showed; None = the server did not tell."""

    prompt_tokens: int | None
    output_tokens: int | None
    finish: str
    usage_per_chunk: bool
    token_ids: bool


def probe(urls: Sequence[str], *, model: str = "", api: Api | None = None, key_env: str = "",
          headers: http.Pairs = (), verify_tls: bool = True, timeout_s: float = 10.0) -> Target:
    """The target behind `urls` (the replicas of one deployment), found by GET /v1/models and tiny requests.

    A URL is `http://host:port`, with or without `/v1` or the full path of an API, or `unix:///path/of/socket`.
    `model` may be "" where the server has exactly one.  `api` None: completions where the server has it (its prompt
    length is exact), else chat; `generate` is SGLang's own route.
    `key_env` names the environment variable with the API key (see `load/place.py`).  `timeout_s` holds for a page;
    a reply gets six times as long.
    A field counts as taken if a request with it succeeds and, for counts in the stream, if the stream carries them; a
    server that ignores a field silently cannot be told from one that obeys, unless its reply ends early.
    Only the first URL is probed in full; the others must be up and have the same model.

    Raises BadInput, ServerUnreachable or ServerRefused, each with what to do.
    """
    if not urls:
        raise BadInput("no URL is given", remedy="give one as http://host:port")
    split = [_split(url) for url in urls]
    named = {found for _, found in split if found}
    if api is None and len(named) == 1:
        api = named.pop()
    _check_headers(headers)
    secrets = (("Authorization", key_env),) if key_env else ()
    target = Target(urls=tuple(base for base, _ in split), model=model, headers=tuple(headers), secret_headers=secrets,
                    verify_tls=verify_tls)
    target = _choose_model(target, timeout_s)
    with http.session(target, timeout_s=timeout_s) as server:
        target = _choose_api(server, target, api)
        return replace(target, tokenize_path=tokenizer.find_route(server, target.model))


def _split(url: str) -> tuple[str, Api | None]:
    """Base URL, and the API if the URL names one."""
    check_url(url)
    if url.startswith(UNIX):
        return url, None
    base = url.rstrip("/")
    for api, route in ROUTES.items():
        if base.endswith(route):
            return base.removesuffix(route), api
    return base.removesuffix("/v1/models").removesuffix("/v1"), None


def _check_headers(headers: http.Pairs) -> None:
    for name, value in headers:
        if not name or not (name + value).isascii() or not (name + value).isprintable() or " " in name or ":" in name:
            raise BadInput(f"{name!r} is not a header that can be sent", where="--header",
                           remedy="write it as name: value, in ASCII")
        if name.lower() in FRAMING:
            raise BadInput(f"{name} is the load client's own header", where="--header", remedy="leave it out")


@dataclass(frozen=True, slots=True)
class _Served:
    name: str
    aliases: tuple[str, ...]
    limit: int | None


def _choose_model(target: Target, timeout_s: float) -> Target:
    """The target with its model and its length limit, after every URL has shown that it serves it."""
    limits: list[int] = []
    for number, url in enumerate(target.urls):
        with http.session(target, number, timeout_s=timeout_s) as server:
            served = _models(server)
        if served is None:
            if not target.model:
                raise ServerRefused("the server has no /v1/models, so its model is not known", where=url,
                                    remedy="name the model with --model")
            target = _with_note(target, f"{url} has no /v1/models: the model's name was not checked")
            continue
        chosen = _find(served, target.model, url)
        target = replace(target, model=target.model or chosen.name)
        limits += [chosen.limit] if chosen.limit else []
    return replace(target, max_model_len=min(limits, default=None))


def _models(server: http.Session) -> tuple[_Served, ...] | None:
    """The models served; None where the server has no such page."""
    path = "/v1/models"
    answer = server.get(path)
    page = answer.json()
    if answer.status in NO_ROUTE and not answer.is_page:
        return None
    entries = page.get("data") if isinstance(page, dict) else None
    if answer.status != 200 or not isinstance(entries, list):
        raise http.refusal(server, path, answer)
    served = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or len(entry["id"]) > LONGEST_NAME:
            raise http.refusal(server, path, answer)
        meta, aliases = entry.get("meta"), entry.get("aliases")
        limit = entry.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
        served.append(_Served(entry["id"], tuple(aliases) if isinstance(aliases, list) else (),
                              limit if type(limit) is int and limit > 0 else None))
    return tuple(served)


def _find(served: tuple[_Served, ...], model: str, url: str) -> _Served:
    """The model of that name or alias; the only one where the name is ""."""
    names = ", ".join(one.name for one in served[:MOST_NAMED])
    if len(served) > MOST_NAMED:
        names += f" and {len(served) - MOST_NAMED} more"
    if not served:
        raise ServerRefused("the server serves no model", where=url, remedy="load one, or wait until it is loaded")
    if not model:
        if len(served) > 1:
            raise BadInput(f"the server has several models: {names}", where=url,
                           remedy="choose one of these with --model")
        return served[0]
    for one in served:
        if model == one.name or model in one.aliases:
            return one
    raise ServerRefused(f"the server has no model {model!r}; it has {names}", where=url,
                        remedy="choose one of these with --model")


def _with_note(target: Target, note: str) -> Target:
    return replace(target, notes=(*target.notes, note))


def _choose_api(server: http.Session, target: Target, api: Api | None) -> Target:
    """The target with its API and fields; the completions API is tried first where the user forces none."""
    if api is not None:
        return _choose_fields(server, replace(target, api=api))
    try:
        return _choose_fields(server, replace(target, api="completions"))
    except ServerRefused as error:
        first = error
    try:
        found = _choose_fields(server, replace(target, api="chat"))
    except ServerRefused as second:
        if second.what == first.what:
            raise
        raise ServerRefused(f"completions: {first.what}; chat: {second.what}", where=server.url,
                            remedy=second.remedy) from second
    return _with_note(found, f"chat, because completions were refused: {first.what}")


def _choose_fields(server: http.Session, target: Target) -> Target:
    """The target with the fields that a request may carry: all at once first, one by one only after a refusal."""
    if target.api == "generate":
        return _choose_generate(server, replace(target, ignore_eos=True, usage_per_chunk=True))
    kept = set(FIELDS)
    answer = _ask_with(server, target, kept)
    while answer.status in REFUSED and (blamed := _blamed(kept, answer.text)):
        kept -= blamed
        answer = _ask_with(server, target, kept)
    if answer.status in REFUSED and kept:
        names, kept = sorted(kept, key=list(FIELDS).index), set()
        answer = _ask_with(server, target, kept)
        for name in names if answer.status == 200 else ():
            trial = _ask_with(server, target, {*kept, name})
            if trial.status == 200:
                kept.add(name)
                answer = trial
    seen = read_stream(server, ROUTES[target.api], answer)
    if _is_early(seen) and kept & {"ignore_eos", "min_tokens"}:
        kept -= {"ignore_eos", "min_tokens"}
        target = _with_note(target, "the server takes ignore_eos or min_tokens without obeying: replies may end early")
    kept -= set() if seen.output_tokens is not None else {"stream_usage"}
    kept -= set() if seen.usage_per_chunk else {"usage_per_chunk"}
    kept -= set() if seen.token_ids else {"token_ids"}
    return _with_fields(target, kept)


def _choose_generate(server: http.Session, target: Target) -> Target:
    """SGLang's own route, which takes no choice: counts come with each chunk."""
    seen = read_stream(server, ROUTES["generate"], _ask_with(server, target, {"ignore_eos", "usage_per_chunk"}))
    if _is_early(seen):
        note = "the server does not obey ignore_eos: replies may end early"
        return _with_note(replace(target, ignore_eos=False), note)
    return target


def _is_early(seen: Seen) -> bool:
    return seen.finish == "stop" and seen.output_tokens is not None and seen.output_tokens < PROBE_TOKENS


def _blamed(names: set[str], text: str) -> set[str]:
    """The fields that the server's refusal names."""
    both = {"stream_usage", "usage_per_chunk"} if "stream_options" in text and "_usage" not in text else set()
    return {name for name in names if FIELDS[name] in text or name in both}


def _with_fields(target: Target, names: set[str]) -> Target:
    return replace(target, stream_usage="stream_usage" in names, usage_per_chunk="usage_per_chunk" in names,
                   token_ids="token_ids" in names, ignore_eos="ignore_eos" in names, min_tokens="min_tokens" in names)


def _ask_with(server: http.Session, target: Target, names: set[str]) -> http.Answer:
    asked = _with_fields(target, names)
    body = request(asked, "Once upon a time there was", PROBE_TOKENS)
    if asked.token_ids:
        body["return_token_ids"] = True
    return server.post(ROUTES[target.api], body, timeout_s=6 * server.timeout_s)


def request(target: Target, prompt: str | list[int], output_tokens: int, *, natural: bool = False) -> dict[str, Any]:
    """The body of one streaming request, with every field that the target takes and the workload needs.

    Decoding is greedy (temperature 0).  Counts per chunk are asked for in one form only: usage, else token ids.
    """
    if target.api == "generate":
        sampling = {"max_new_tokens": output_tokens, "temperature": 0, "ignore_eos": target.ignore_eos and not natural}
        return {"text" if isinstance(prompt, str) else "input_ids": prompt, "sampling_params": sampling, "stream": True}
    body: dict[str, Any] = {"model": target.model}
    if target.api == "chat":
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        body["prompt"] = prompt
    body |= {"max_tokens": output_tokens, "temperature": 0, "stream": True}
    if target.stream_usage:
        body["stream_options"] = {"include_usage": True}
        if target.usage_per_chunk:
            body["stream_options"]["continuous_usage_stats"] = True
    if target.token_ids and not target.usage_per_chunk:
        body["return_token_ids"] = True
    if not natural:
        body |= {"ignore_eos": True} if target.ignore_eos else {}
        body |= {"min_tokens": output_tokens} if target.min_tokens else {}
    return body


def ask(server: http.Session, target: Target, prompt: str | list[int]) -> Seen:
    """Send one prompt for a reply of one token.  Raises ServerRefused for anything but a good stream."""
    path = ROUTES[target.api]
    return read_stream(server, path, server.post(path, request(target, prompt, 1, natural=True)))


def read_stream(server: http.Session, path: str, answer: http.Answer) -> Seen:
    """What a whole answer to a streaming request shows.

    Raises ServerRefused for a status other than 200, a page, an answer in one piece, an error in the stream, or a
    stream without tokens.
    """
    if answer.status != 200 or answer.is_page:
        raise http.refusal(server, path, answer)
    whole = answer.json()
    if isinstance(whole, dict) and "choices" in whole:
        raise ServerRefused("the server answers in one piece although a stream was asked for", where=server.url + path,
                            remedy="switch streaming on in the server or in the proxy before it")
    chunks = []
    for value in _chunks(answer):
        chunks.append(chunk := read_chunk(value))
        if chunk.error:
            raise http.refusal(server, path, replace(answer, body=json.dumps(value).encode()))
    texts = [chunk for chunk in chunks if chunk.text]
    totals = [chunk.total_tokens for chunk in chunks if chunk.total_tokens is not None]
    if not texts and not any(totals):
        raise http.refusal(server, path, answer)
    return Seen(prompt_tokens=next((chunk.prompt_tokens for chunk in reversed(chunks)
                                    if chunk.prompt_tokens is not None), None),
                output_tokens=totals[-1] if totals else None,
                finish=next((chunk.finish for chunk in chunks if chunk.finish), ""),
                usage_per_chunk=len(totals) > len(texts) > 0 and all(chunk.total_tokens is not None for chunk in texts),
                token_ids=bool(texts) and all(chunk.token_ids for chunk in texts))


def _chunks(answer: http.Answer) -> Iterator[dict[str, Any]]:
    for line in answer.text.splitlines():
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            try:
                chunk = json.loads(line[5:])
            except (ValueError, RecursionError):
                continue
            if isinstance(chunk, dict):
                yield chunk
