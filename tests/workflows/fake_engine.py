"""llama-server's flags, words and pages around the true-timing server; its environment says how it fails.

SCRIPT: fields of the true-timing server's script as JSON.  FAKE: what goes wrong, one of "does not start" (unless CURED
is set), "one slot", "dies at two users", "stalls at two users" (unless CURED is set), "dies in the probe".
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rooftop.load import truth
from rooftop.load.script import Script, Step, answer

MODE = os.environ.get("FAKE", "")
GIVEN = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
TIMES = {"ttft_s": 0.004, "itl_s": 0.001}
DEATH = "GGML_ASSERT(n_tokens > 0) failed"


class Fake:
    """The pages and answers; counts the streams that are open."""

    def __init__(self) -> None:
        self.slots = int(GIVEN.get("--parallel", "1"))
        self.context = int(GIVEN.get("--ctx-size", "4096")) // self.slots
        self.open = self.streams = 0

    def page(self, script: Script, path: str, body: dict[str, Any]) -> bytes:
        if path == "/props":
            shown = 1 if MODE == "one slot" else self.slots
            return plain({"total_slots": shown, "default_generation_settings": {"n_ctx": self.context}})
        if path == "/metrics":
            return framed(f"llamacpp:requests_processing {self.open}\n".encode(), "text/plain")
        if path == "/v1/models":
            return plain({"data": [{"id": script.model, "meta": {"n_ctx": self.context}}]})
        return PAGE(script, path, body)

    def answer(self, script: Script, path: str, headers: dict[str, str], body: dict[str, Any]) -> Iterator[Step]:
        if not body.get("stream"):
            yield Step(0.0, plain({"choices": [{"text": f"{body['prompt']} and so on"}]}))
            return
        self.open += 1
        self.streams += 1
        if (MODE == "dies at two users" and self.open == 2) or (MODE == "dies in the probe" and self.streams == 2):
            say(DEATH)
            os.abort()
        if MODE == "stalls at two users" and self.open == 2 and "CURED" not in os.environ:
            script = replace(script, stall_after=1)
        try:
            yield from answer(script, path, headers, body)
        finally:
            self.open -= 1


def plain(content: Any) -> bytes:
    return framed(json.dumps(content).encode(), "application/json")


def framed(data: bytes, kind: str) -> bytes:
    return b"HTTP/1.1 200 X\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind.encode(), len(data), data)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    if "--version" in sys.argv:
        print("version: 77 (fake)")
        return
    say(f"0.00.01.1 I srv    load_model: loading model '{GIVEN['--model']}'")
    if MODE == "does not start" and "CURED" not in os.environ:
        say("failed to allocate buffer for kv cache")
        sys.exit(1)
    fake = Fake()
    times = {**TIMES, **json.loads(os.environ.get("SCRIPT", "{}"))}
    server = truth.Truth(Script(model=GIVEN["--alias"], **times), int(GIVEN["--port"]))
    truth._page, truth.answer = fake.page, fake.answer
    shown = 1 if MODE == "one slot" else fake.slots
    say(f"0.00.02.1 I srv    load_model: initializing, n_slots = {shown}, n_ctx_slot = {fake.context}, "
        "kv_unified = 'false'")
    say(f"0.00.03.1 I srv  llama_server: listening on {server.url}")
    server.run()


PAGE = truth._page

if __name__ == "__main__":
    main()
