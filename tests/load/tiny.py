"""A tiny OpenAI-compatible server on loopback whose every trait a test can set."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rooftop.load.words import WORDS

PLACES = {word: place for place, word in enumerate(WORDS)}
FIELDS = ("stream_options", "return_token_ids", "ignore_eos", "min_tokens", "temperature")


@dataclass
class Tiny:
    """What the server is and does.  `refuses`: fields it answers 400 to, naming them if `blames`.

    Its tokenizer knows each word of WORDS as one token, but a word of `double` as two at the start of a text and one of
    `triple` as three everywhere.  A chat template adds `template` tokens, any text prompt `begin`.
    """

    models: Any = "tiny"
    apis: tuple[str, ...] = ("completions", "chat")
    refuses: tuple[str, ...] = ()
    blames: bool = True
    usage: bool = True
    per_chunk: bool = False
    token_ids: bool = False
    takes_ids: bool = True
    tokenizes: str = "/tokenize"
    template: int = 7
    begin: int = 0
    stops_early: bool = False
    double: frozenset[str] = frozenset()
    triple: frozenset[str] = frozenset()
    key: str = ""
    pages: dict[str, tuple[int, str, bytes]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    url: str = ""

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for place, word in enumerate(text.split()):
            token = PLACES.get(word, len(WORDS))
            count = 3 if word in self.triple else 2 if word in self.double and not place else 1
            ids += [token * 4 + part for part in range(count)]
        return ids

    def bodies(self, part: str) -> list[Any]:
        return [body for path, body in self.asked if path.endswith(part)]

    def reply(self, path: str, body: Any) -> tuple[int, str, bytes]:
        if path in self.pages:
            return self.pages[path]
        if path == "/v1/models" and self.models is not None:
            entries = [{"id": self.models, "max_model_len": 2048}] if isinstance(self.models, str) else self.models
            return said(200, {"object": "list", "data": entries})
        if path == self.tokenizes and path:
            ids = self.encode(body["content"])
            return said(200, {"tokens": ids, "count": len(ids)})
        for api, route in (("completions", "/v1/completions"), ("chat", "/v1/chat/completions")):
            if path == route and api in self.apis:
                return self.generate(api, body)
        return said(404, {"error": {"message": "no such path"}})

    def generate(self, api: str, body: Any) -> tuple[int, str, bytes]:
        wrong = [name for name in self.refuses if name in body]
        wrong += [name for name in self.refuses if name in body.get("stream_options", {})]
        prompt = body["messages"][0]["content"] if api == "chat" else body["prompt"]
        wrong += ["prompt"] if isinstance(prompt, list) and not self.takes_ids else []
        if wrong:
            return said(400, {"error": {"message": f"not permitted: {wrong}" if self.blames else "bad request"}})
        text = prompt if isinstance(prompt, str) else ""
        length = len(self.encode(text)) + self.begin if text else len(prompt)
        length += self.template if api == "chat" else 0
        count = 2 if self.stops_early else body["max_tokens"]
        return 200, "text/event-stream", b"".join(self.events(api, body, length, count))

    def events(self, api: str, body: Any, length: int, count: int) -> Iterator[bytes]:
        options = body.get("stream_options", {})
        if api == "chat":
            yield event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for number in range(1, count + 1):
            choice: dict[str, Any] = {"delta": {"content": " x"}} if api == "chat" else {"text": " x"}
            if self.token_ids and body.get("return_token_ids"):
                choice["token_ids"] = [number]
            last = "stop" if self.stops_early else "length"
            chunk: dict[str, Any] = {"choices": [{**choice, "finish_reason": last if number == count else None}]}
            if self.per_chunk and options.get("continuous_usage_stats"):
                chunk["usage"] = {"prompt_tokens": length, "completion_tokens": number}
            yield event(chunk)
        if self.usage and options.get("include_usage"):
            yield event({"choices": [], "usage": {"prompt_tokens": length, "completion_tokens": count}})
        yield b"data: [DONE]\n\n"


def event(chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def said(status: int, content: Any) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(content).encode()


@contextmanager
def serving(tiny: Tiny) -> Iterator[Tiny]:
    """`tiny` on a free port of 127.0.0.1, its `url` set."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            self.send(*tiny.reply(self.path, None), body=None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send(*tiny.reply(self.path, body), body=body)

        def send(self, status: int, kind: str, content: bytes, *, body: Any) -> None:
            tiny.asked.append((self.path, body))
            if tiny.key and self.headers.get("Authorization") != f"Bearer {tiny.key}":
                given = self.headers.get("Authorization")
                status, kind, content = said(401, {"error": {"message": f"bad key {given}"}})
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if status == 307:
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    tiny.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield tiny
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
