import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rooftop.domain.codec import to_json
from rooftop.domain.progress import Progress
from rooftop.domain.workload import Arrivals, Stop, Workload
from rooftop.errors import BadInput, StoreFailed
from rooftop.load.job import Job, Prompt, Target
from rooftop.load.level import Level, measure, read_spool
from rooftop.load.script import Script
from rooftop.load.spool import write_job
from rooftop.load.truth import Truth
from tests.load.relay import TLS, Relay
from tests.load.test_http import listening


@pytest.fixture(scope="module")
def server() -> Iterator[Truth]:
    with Truth() as truth:
        yield truth


def prompts(count: int, tokens: int = 16, **script: Any) -> list[Prompt]:
    body = {"model": "truth", "stream": True, "max_tokens": tokens, "truth": script}
    return [Prompt(json.dumps(body | {"prompt": f"number {number}"}).encode(), 7, tokens) for number in range(count)]


def closed(requests: int | None, users: int = 4, **fields: Any) -> Workload:
    return Workload(arrivals=Arrivals(concurrency=users), stop=Stop(requests=requests), output_tokens=16, **fields)


def job(url: str, workload: Workload, spool: Path, *, timeout_s: float = 5.0, **target: Any) -> Job:
    return Job(Target((url,), "truth", api=workload.api, **target), workload, str(spool), timeout_s=timeout_s)


def truth_of(level: Level, server: Truth, warmup: int = 0) -> list[tuple[list[int], list[int]]]:
    """For each reply: client stamps and the server's own, on one clock."""
    name = {int(served.request_id.rsplit("-", 1)[1]): served for served in server.log[-len(level.replies) - warmup:]}
    return [([level.origin_ns + stamp for stamp in reply.times_ns()], name[reply.number + warmup].chunk_ns)
            for reply in level.replies]


@pytest.mark.parametrize("script", [
    {"ttft_s": 0.02, "itl_s": 0.002, "packed": "gzip"}, {"tokens_per_chunk": 3, "usage": "each", "framing": "close"},
    {"usage": "none"}, {"tokens_per_chunk": 5, "pieces": 9, "piece_gap_s": 0.0005},
], ids=str)
def test_stamps_follow_the_servers_own(server: Truth, tmp_path: Path, script: dict[str, Any]) -> None:
    level = measure(job(server.url, closed(12, warmup=4), tmp_path), prompts(16, **script))
    assert level.fault is None
    assert [reply.number for reply in level.replies] == list(range(12))
    assert all(reply.ok for reply in level.replies)
    for reply, (mine, theirs) in zip(level.replies, truth_of(level, server, 4), strict=True):
        assert reply.output_tokens == (None if script.get("usage") == "none" else 16)
        assert len(mine) == len(theirs) == (16 if script.get("tokens_per_chunk") is None else len(theirs))
        assert all(got >= sent for got, sent in zip(mine, theirs, strict=True))
        assert reply.due_ns <= reply.sent_ns
        assert reply.due_ns <= reply.headers_ns <= mine[0] - level.origin_ns
        assert mine[-1] - level.origin_ns <= reply.end_ns
    assert level.client is not None
    assert level.client.stamps == "kernel" or not sys.platform.startswith("linux")
    assert level.client.streams_open_max == 4
    assert level.client.missing_stamps == 0


BAD = [
    ("http 401", {"status": 401}), ("http 429", {"status": 429, "retry_after": "1"}), ("http 503", {"status": 503}),
    ("not a stream", {"kind": "html"}), ("cut", {"cut_after": 3}), ("reset", {"reset_after": 3}),
    ("server error", {"error_after": 3}), ("too large", {"huge_bytes": 20_000_000}), ("timeout", {"stall_after": 3}),
    ("timeout", {"trickle_s": 0.05}),
]


def test_bad_answers_are_counted_by_kind(server: Truth, tmp_path: Path) -> None:
    bodies = [body for _, script in BAD for body in prompts(1, **script)] + prompts(3)
    level = measure(job(server.url, closed(len(bodies), users=2), tmp_path, timeout_s=0.4), bodies)
    assert level.fault is None
    assert [reply.error for reply in level.replies] == [kind for kind, _ in BAD] + [None] * 3


def test_a_chunk_of_100_mb_is_cut_off(server: Truth, tmp_path: Path) -> None:
    bodies = prompts(1, huge_bytes=100_000_000) + prompts(1)
    level = measure(job(server.url, closed(2, users=2), tmp_path, timeout_s=30), bodies)
    assert [reply.error for reply in level.replies] == ["too large", None]
    assert (tmp_path / "reads.bin").stat().st_size < 1 << 25


def test_a_warm_up_that_fails_ends_the_level(server: Truth, tmp_path: Path) -> None:
    level = measure(job(server.url, closed(4, warmup=2), tmp_path), prompts(6, status=401))
    assert level.replies == ()
    assert level.fault is not None
    assert level.fault.kind == "warm-up"
    assert "http 401" in level.fault.reason


def test_nothing_at_the_url_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    level = measure(job(f"http://127.0.0.1:{port}", closed(4), tmp_path), prompts(4))
    assert level.replies == ()
    assert level.fault is not None
    assert level.fault.kind == "connect"
    assert str(port) in level.fault.reason


def test_open_loop_keeps_its_schedule(server: Truth, tmp_path: Path) -> None:
    workload = Workload(arrivals=Arrivals(kind="gamma", rate_per_s=200, cv=2.0), stop=Stop(seconds=0.5), seed=3)
    level = measure(job(server.url, workload, tmp_path), prompts(300, tokens=4))
    assert level.fault is None
    due = [reply.due_ns for reply in level.replies]
    assert 40 < len(due) < 250
    assert due == sorted(due)
    assert max(due) < 0.5e9
    assert all(reply.sent_ns >= reply.due_ns for reply in level.replies)


def test_open_streams_are_capped(server: Truth, tmp_path: Path) -> None:
    arrivals = Arrivals(kind="constant", rate_per_s=500, concurrency=2)
    workload = Workload(arrivals=arrivals, stop=Stop(requests=20))
    level = measure(job(server.url, workload, tmp_path), prompts(20, tokens=4, ttft_s=0.02))
    assert level.client is not None
    assert level.client.streams_open_max == 2
    assert level.client.send_late_max_s > 0.05
    assert level.client.warnings


def test_seconds_end_a_level_and_what_is_open_is_finished(server: Truth, tmp_path: Path) -> None:
    workload = replace(closed(None, users=2), stop=Stop(seconds=0.3))
    level = measure(job(server.url, workload, tmp_path), prompts(4, ttft_s=0.05))
    assert level.fault is None
    assert 6 <= len(level.replies) <= 14
    assert all(reply.ok for reply in level.replies)
    assert max(reply.due_ns for reply in level.replies) < 0.3e9
    assert any("prompts came twice" in warning for warning in level.client.warnings) if level.client else False


def test_a_level_stops_once_its_rate_is_known_or_says_that_it_is_not(server: Truth, tmp_path: Path) -> None:
    workload = replace(closed(None, users=2), stop=Stop(seconds=0.3, precision=0.001))
    level = measure(job(server.url, workload, tmp_path), prompts(4, ttft_s=0.05))
    assert "not known to 0.1 %" in level.notes[0]


def test_servers_share_by_least_open_streams(server: Truth, tmp_path: Path) -> None:
    with Truth(Script()) as other:
        target = Target((server.url, other.url), "truth")
        level = measure(Job(target, closed(16, users=4), str(tmp_path)), prompts(16, ttft_s=0.02))
        assert len(other.log) == 8
    assert [reply.server for reply in level.replies].count(0) == 8


def test_closed_connections_are_replaced_outside_ttft(server: Truth, tmp_path: Path) -> None:
    before = server.connections
    level = measure(job(server.url, closed(8, users=2), tmp_path), prompts(8, close=True))
    assert level.fault is None
    assert all(reply.ok for reply in level.replies)
    assert server.connections - before >= 8


def test_secrets_go_out_and_stay_out_of_the_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "hush-hush")
    with Truth(Script(key="hush-hush")) as server:
        target = Target((server.url,), "truth", secret_headers=(("Authorization", "SOME_KEY"),))
        level = measure(Job(target, closed(2), str(tmp_path)), prompts(2))
    assert level.fault is None
    assert not any(b"hush-hush" in path.read_bytes() for path in tmp_path.iterdir())


def test_tls_is_verified_and_measured(server: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))
    with Relay(server.port, tls=True) as relay:
        level = measure(job(f"https://localhost:{relay.port}", closed(4, users=2), tmp_path / "1"), prompts(4))
        assert level.fault is None
        assert [reply.output_tokens for reply in level.replies] == [16] * 4
        assert level.client is not None
        assert level.client.tls_max_s > 0
        assert level.client.stamps == "kernel"
        monkeypatch.delenv("SSL_CERT_FILE")
        level = measure(job(f"https://localhost:{relay.port}", closed(4, users=2), tmp_path / "2"), prompts(4))
        assert level.fault is not None
        assert level.fault.kind in ("tls", "connect")
        level = measure(job(f"https://localhost:{relay.port}", closed(4, users=2), tmp_path / "3", verify_tls=False),
                        prompts(4))
        assert level.fault is None


def test_proxies_are_used_but_not_for_loopback(server: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Relay(server.port, proxy=True) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        level = measure(job("http://somewhere.invalid:81", closed(2, users=1), tmp_path / "1"), prompts(2))
        assert level.fault is None
        assert proxy.heard == ["POST http://somewhere.invalid:81/v1/chat/completions HTTP/1.1"]
        level = measure(job(server.url, closed(2, users=1), tmp_path / "2"), prompts(2))
        assert level.fault is None
        assert len(proxy.heard) == 1
    with Relay(server.port, tls=True) as tls, Relay(tls.port, proxy=True) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        level = measure(job("https://somewhere.invalid", closed(2, users=1), tmp_path / "3", verify_tls=False),
                        prompts(2))
        assert level.fault is None
        assert proxy.heard == ["CONNECT somewhere.invalid:443 HTTP/1.1"]


def test_interrupting_keeps_what_was_measured(server: Truth, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.done >= 2:
            raise KeyboardInterrupt

    workload = replace(closed(None, users=2), stop=Stop(seconds=60))
    level = measure(job(server.url, workload, tmp_path), prompts(8, ttft_s=0.05), tell=interrupt)
    assert level.fault is not None
    assert level.fault.kind == "stopped"
    assert sum(reply.ok for reply in level.replies) >= 2
    assert {reply.error for reply in level.replies} <= {None, "stopped"}


def start_child(url: str, spool: Path, seconds: float) -> "subprocess.Popen[bytes]":
    workload = replace(closed(None, users=2), stop=Stop(seconds=seconds))
    write_job(job(url, workload, spool), prompts(50, ttft_s=0.02))
    return subprocess.Popen((sys.executable, "-m", "rooftop.load", str(spool)), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)


def lines_of(process: "subprocess.Popen[bytes]", count: int) -> None:
    assert process.stdout is not None
    for _ in range(count):
        process.stdout.readline()


def test_a_killed_run_is_read_back(server: Truth, tmp_path: Path) -> None:
    with start_child(server.url, tmp_path, 60) as process:
        lines_of(process, 7)
        process.kill()
    level = read_spool(tmp_path)
    assert level.fault is not None
    assert level.fault.kind == "killed"
    assert sum(reply.ok for reply in level.replies) > 20
    assert {reply.error for reply in level.replies} <= {None, "lost"}


def test_the_load_process_ends_with_its_parent(server: Truth, tmp_path: Path) -> None:
    with start_child(server.url, tmp_path, 60) as process:
        lines_of(process, 2)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
    assert read_spool(tmp_path).fault is not None


def test_a_terminated_parent_keeps_what_was_measured(server: Truth, tmp_path: Path) -> None:
    workload = replace(closed(None, users=2), stop=Stop(seconds=60))
    code = ("import sys; from rooftop.domain.codec import from_json; from rooftop.load.job import Job, Prompt\n"
            "from rooftop.load.level import measure\n"
            "job = from_json(Job, sys.argv[1])\n"
            "level = measure(job, [Prompt(sys.argv[2].encode(), 7, 16)],"
            " tell=lambda now: print(now.done, flush=True))\n"
            "print(level.fault.kind, sum(reply.ok for reply in level.replies) > 2, flush=True)")
    body = prompts(1, ttft_s=0.02)[0].body.decode()
    with subprocess.Popen((sys.executable, "-c", code, to_json(job(server.url, workload, tmp_path)), body),
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read().strip().splitlines()
    assert rest[-1] == "stopped True"


def test_a_full_disk_is_a_fault_not_a_crash(server: Truth, tmp_path: Path) -> None:
    write_job(job(server.url, closed(50, users=2), tmp_path), prompts(50, tokens=200))
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));" \
            "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);" \
            "sys.argv = ['load', sys.argv[1]]; runpy.run_module('rooftop.load', run_name='__main__')"
    with subprocess.Popen((sys.executable, "-c", limit, str(tmp_path)), stdin=subprocess.PIPE,
                          stdout=subprocess.DEVNULL) as process:
        assert process.wait(20) == 0
    level = read_spool(tmp_path)
    assert level.fault is not None
    assert level.fault.kind == "spool"


def test_a_level_needs_an_end(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="never end"):
        measure(job("http://127.0.0.1:1", closed(None), tmp_path), prompts(1))


def test_a_level_needs_a_prompt(server: Truth, tmp_path: Path) -> None:
    level = measure(job(server.url, closed(1), tmp_path), [])
    assert level.fault is not None
    assert "no prompt" in level.fault.reason


def test_a_folder_without_a_level_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed):
        read_spool(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreFailed):
        measure(job("http://127.0.0.1:1", closed(1), tmp_path / "file" / "under"), prompts(1))


def test_a_server_that_closes_after_each_answer_answers_all(server: Truth, tmp_path: Path) -> None:
    """llama-server closes kept connections without a word: a request goes again on a new one, not on a dead one."""
    level = measure(job(server.url, closed(64, users=8), tmp_path),
                    prompts(64, close=True, announce=False, ttft_s=0.01))
    assert [reply.error for reply in level.replies] == [None] * 64


def test_a_unix_socket_has_stamps_at_the_read(server: Truth, tmp_path: Path) -> None:
    with Relay(server.port, unix=tmp_path / "llm.sock") as relay:
        level = measure(job(relay.url, closed(8), tmp_path / "spool"), prompts(8))
    assert level.fault is None
    assert [reply.output_tokens for reply in level.replies] == [16] * 8
    assert level.client is not None
    assert level.client.stamps == "read"
    assert level.client.missing_stamps > 0


def test_sglangs_own_route_is_counted_to_the_token(server: Truth, tmp_path: Path) -> None:
    asked = replace(closed(8), api="generate")
    bodies = [Prompt(json.dumps({"text": f"number {n}", "sampling_params": {"max_new_tokens": 16}, "stream": True,
                                 "truth": {"tokens_per_chunk": 3}}).encode(), 7, 16) for n in range(8)]
    level = measure(job(server.url, asked, tmp_path), bodies)
    assert level.fault is None
    assert [(reply.output_tokens, reply.count_source) for reply in level.replies] == [(16, "usage per chunk")] * 8
    assert all(sum(reply.tokens_per_chunk()) == 16 for reply in level.replies)


@pytest.mark.parametrize(("parts", "users", "requests"), [(2, 4, 12), (3, 4, 11), (4, 2, 3)])
def test_a_level_can_be_shared_by_processes(server: Truth, tmp_path: Path, parts: int, users: int,
                                            requests: int) -> None:
    asked = replace(job(server.url, closed(requests, users=users, warmup=users), tmp_path), processes=parts)
    told: list[Progress] = []
    level = measure(asked, prompts(requests + users + parts, itl_s=0.001), tell=told.append)
    assert level.fault is None
    assert [reply.number for reply in level.replies] == list(range(requests))
    assert all(reply.ok and reply.output_tokens == 16 for reply in level.replies)
    assert level.client is not None
    assert level.client.processes == min(parts, users)
    assert level.client.streams_open_max == users
    assert level.client.missing_stamps == 0
    begun = [reply.due_ns for reply in level.replies]
    assert min(begun) >= 0
    assert level.measured_s == max(reply.end_ns for reply in level.replies) * 1e-9
    served = server.log[-requests - users:]
    assert len({json.dumps(one.body) for one in served}) == requests + users
    assert told


def test_processes_share_one_schedule(server: Truth, tmp_path: Path) -> None:
    arrivals = Arrivals(kind="poisson", concurrency=0, rate_per_s=200)
    asked = Workload(arrivals=arrivals, stop=Stop(requests=60), output_tokens=2, seed=3)
    whole = measure(job(server.url, asked, tmp_path / "one"), prompts(62, tokens=2))
    shared = measure(replace(job(server.url, asked, tmp_path / "two"), processes=2), prompts(62, tokens=2))
    due = [[reply.due_ns for reply in level.replies] for level in (whole, shared)]
    gap = max(abs(one - two) for one, two in zip(*due, strict=True))
    assert gap < 50_000_000
    assert [level.fault for level in (whole, shared)] == [None, None]


def test_one_lost_process_ends_the_level(server: Truth, tmp_path: Path) -> None:
    def kill(now: Progress) -> None:
        if now.stage == "level" and not killed:
            found = subprocess.run(["pgrep", "-f", f"rooftop.load {tmp_path} 1"], capture_output=True, text=True)
            killed.append(int(found.stdout.split()[0]))
            os.kill(killed[0], signal.SIGKILL)

    killed: list[int] = []
    asked = replace(job(server.url, closed(None, users=4), tmp_path), processes=2)
    asked = replace(asked, workload=replace(asked.workload, stop=Stop(seconds=60)))
    level = measure(asked, prompts(2000, itl_s=0.01), tell=kill)
    assert level.fault is not None
    assert level.fault.kind == "killed"
    assert "ended with -9" in level.fault.reason
    assert level.measured_s < 30
    assert level.replies
    found = subprocess.run(["pgrep", "-f", f"rooftop.load {tmp_path}"], capture_output=True)
    assert found.returncode == 1


@pytest.mark.parametrize(("counts", "words"), [
    (2**31 - 1, "counts more output tokens than were asked in 3 of 3 replies (2147483647 of 16)"),
    (17, "counts more output tokens than were asked in 3 of 3 replies (17 of 16)"),
    (2, "counts fewer output tokens than chunks with text came in 3 of 3 replies (2 in 16 chunks)"),
    (16, ""), (15, ""),
])
def test_counts_that_cannot_be_are_told(tmp_path: Path, counts: int, words: str) -> None:
    texts = b'data: {"choices":[{"index":0,"text":"x"}]}\n\n' * 16
    bill = b'data: {"choices":[],"usage":{"completion_tokens":%d}}\n\ndata: [DONE]\n\n' % counts
    body = texts + bill
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    def serve(client: socket.socket) -> None:
        while client.recv(65536):
            client.sendall(page)

    with listening(serve) as url:
        level = measure(job(url, closed(3, users=1), tmp_path), prompts(3))
    assert level.fault is None
    assert [note for note in level.notes if words and words in note] == list(level.notes)
    assert len(level.notes) == bool(words)


def test_a_protocol_switch_is_an_error_of_the_reply(tmp_path: Path) -> None:
    def serve(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nxx")

    with listening(serve) as url:
        level = measure(job(url, closed(3, users=1), tmp_path), prompts(3))
    assert level.fault is not None
    assert level.fault.kind == "malformed"
    assert "another protocol" in level.fault.reason


@contextlib.contextmanager
def threaded(door: socket.socket, answer: Callable[[socket.socket], object]) -> Iterator[None]:
    """`answer` for each connection in a thread of its own; none is closed before the block ends."""
    kept: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                client, _ = door.accept()
            except OSError:
                return
            kept.append(client)
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    with door:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield
        door.shutdown(socket.SHUT_RDWR)
        thread.join()
    for client in kept:
        client.close()


def test_an_answer_to_half_a_request_ends_its_connection(tmp_path: Path) -> None:
    """The rest of the body that was not sent must not stand before the next request."""
    def refuse(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n")

    body = json.dumps({"model": "truth", "prompt": "x" * 20_000_000}).encode()
    door = socket.create_server(("127.0.0.1", 0))
    with threaded(door, refuse):
        asked = job(f"http://127.0.0.1:{door.getsockname()[1]}", closed(3, users=1), tmp_path)
        level = measure(asked, [Prompt(body, 7, 16)] * 3)
    assert [reply.error for reply in level.replies] == ["http 413"] * 3


def test_a_unix_socket_with_a_short_queue_takes_all(tmp_path: Path) -> None:
    body = b'data: {"choices":[{"index":0,"text":"x"}]}\n\ndata: [DONE]\n\n'
    page = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    def answer(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while client.recv(65536):
                client.sendall(page)

    door = socket.socket(socket.AF_UNIX)
    door.bind(str(tmp_path / "s"))
    door.listen(1)
    with threaded(door, answer):
        level = measure(job(f"unix://{tmp_path}/s", closed(64, users=32), tmp_path / "spool"), prompts(64))
    assert level.fault is None
    assert [reply.error for reply in level.replies] == [None] * 64


def test_a_disk_too_full_for_a_last_word_is_named(server: Truth, tmp_path: Path) -> None:
    (tmp_path / "end.part").mkdir()
    level = measure(job(server.url, closed(2), tmp_path), prompts(2))
    assert level.fault is not None
    assert level.fault.kind == "spool"


@pytest.mark.parametrize("comment", [b": keep-alive\n\n", b": ping - 2026-01-01 00:00:00.000000+00:00\r\n\r\n"])
def test_comments_of_a_proxy_are_no_sign_of_life(tmp_path: Path, comment: bytes) -> None:
    def answer(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(600):
                time.sleep(0.05)
                client.sendall(b"%x\r\n%b\r\n" % (len(comment), comment))

    door = socket.create_server(("127.0.0.1", 0))
    with threaded(door, answer):
        asked = job(f"http://127.0.0.1:{door.getsockname()[1]}", closed(1, users=1), tmp_path, timeout_s=0.4)
        level = measure(asked, prompts(1))
    assert [reply.error for reply in level.replies] == ["timeout"]
