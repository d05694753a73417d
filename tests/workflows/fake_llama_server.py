"""A program with llama-server's flags and words; FAKE says how it fails."""

import json
import mmap
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE = os.environ.get("FAKE", "good")
GIVEN = dict(zip(sys.argv[1::1], sys.argv[2::1], strict=False))
SLOTS = 1 if MODE == "one slot" else int(GIVEN.get("--parallel", "1"))
CONTEXT = int(GIVEN.get("--ctx-size", "4096")) // int(GIVEN.get("--parallel", "1"))


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: str, kind: str = "application/json") -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/health" and MODE == "loading for ever":
            self.answer(503, '{"error": {"message": "Loading model"}}')
        elif self.path == "/shrink":
            say("0.01.00.1 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 7, kv_unified = 'false'")
            self.answer(200, "{}")
        elif self.path == "/health":
            self.answer(200, '{"status":"ok"}')
        elif self.path == "/props":
            settings = {"n_ctx": CONTEXT}
            self.answer(200, json.dumps({"total_slots": SLOTS, "default_generation_settings": settings}))
        else:
            self.answer(404, "{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if MODE == "dead at first token":
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(600)
        if MODE == "gone at first token":
            print("GGML_ASSERT(n_tokens > 0) failed", file=sys.stderr, flush=True)
            os._exit(134)
        if MODE == "500":
            self.answer(500, '{"error": {"message": "compute error"}}')
        elif not body.get("stream") and MODE == "dead after first token":
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(600)
        elif not body.get("stream"):
            self.answer(200, json.dumps({"choices": [{"text": f"{body['prompt']} and so on"}]}))
        else:
            words = [] if MODE == "empty" else ["", "one", " two"]
            events = [json.dumps({"choices": [{"text": word}]}) for word in words]
            self.answer(200, "".join(f"data: {event}\n\n" for event in (*events, "[DONE]")), "text/event-stream")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    if "--version" in sys.argv:
        print("version: 1234 (abcdef)")
        return
    if MODE == "exits":
        say("error: invalid argument: --metrics")
        sys.exit(1)
    if MODE == "ends":
        sys.exit(0)
    say(f"0.00.01.1 I srv    load_model: loading model '{GIVEN['--model']}'")
    if MODE == "hangs":
        time.sleep(600)
    if MODE == "compiles":
        until = time.monotonic() + 3.5
        while time.monotonic() < until:
            with mmap.mmap(-1, 1 << 22) as new:
                new.write(bytes(1 << 22))
    port = int(GIVEN["--port"])
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port + (MODE == "elsewhere")), Page)
    except OSError:
        if MODE == "deaf":
            time.sleep(600)
        say(f"0.00.02.1 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}")
        sys.exit(1)
    say(f"0.00.02.1 I srv    load_model: initializing, n_slots = {SLOTS}, n_ctx_slot = {CONTEXT}, kv_unified = 'false'")
    say(f"0.00.03.1 I srv  llama_server: listening on http://127.0.0.1:{port}")
    server.serve_forever()


main()
