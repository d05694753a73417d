"""Load clients of others, each in an environment of its own, driven with the same load as `rooftop bench`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

Times = tuple[list[float], list[float]]


@dataclass(frozen=True)
class Asked:
    """One load: closed with `users`, or open at `rate`; the folder takes what the client writes."""

    url: str
    requests: int
    tokens: int
    users: int
    rate: float
    folder: Path
    tokenizer: str


@dataclass(frozen=True)
class Peer:
    """A client: its command after the environment's Python, and TTFT and ITL in ms from what it wrote."""

    name: str
    command: Callable[[Asked], Sequence[str]]
    read: Callable[[Path], Times]


RUST = """import glob, importlib.util, sys
where = importlib.util.find_spec("sglang").submodule_search_locations[0] + "/srt/rust_extensions/_bench*.so"
spec = importlib.util.spec_from_file_location("_bench", glob.glob(where)[0])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.run_argv(["sglang-bench", *sys.argv[1:]])
"""


def _rust(asked: Asked) -> Sequence[str]:
    load = ("--max-concurrency", str(asked.users)) if asked.users else ("--request-rate", str(asked.rate))
    return ("-c", RUST, "--backend", "sglang-oai-chat", "--base-url", asked.url, "--dataset-name", "random-ids",
            "--model", "m", "--tokenizer", asked.tokenizer, "--num-prompts", str(asked.requests),
            "--random-input-len", "128", "--random-output-len", str(asked.tokens), "--random-range-ratio", "1.0",
            *load, "--output-file", str(asked.folder / "out.jsonl"), "--output-details", "--disable-tqdm")


def _rust_times(folder: Path) -> Times:
    found = json.loads((folder / "out.jsonl").read_text().splitlines()[-1])
    return _milliseconds(found["ttfts"]), _milliseconds(gap for gaps in found["itls"] for gap in gaps)


def _vllm(asked: Asked) -> Sequence[str]:
    load = ("--max-concurrency", str(asked.users)) if asked.users else ("--request-rate", str(asked.rate))
    return ("-c", "from vllm.entrypoints.cli.main import main; main()", "bench", "serve", "--backend",
            "openai-chat", "--endpoint", "/v1/chat/completions", "--base-url", asked.url, "--dataset-name",
            "random", "--model", "m", "--tokenizer", asked.tokenizer, "--num-prompts", str(asked.requests),
            "--random-input-len", "128",
            "--random-output-len", str(asked.tokens), *load, "--ignore-eos", "--disable-tqdm", "--save-result",
            "--save-detailed", "--result-dir", str(asked.folder), "--result-filename", "out.json")


def _vllm_times(folder: Path) -> Times:
    found = json.loads((folder / "out.json").read_text())
    return _milliseconds(found["ttfts"]), _milliseconds(gap for gaps in found["itls"] for gap in gaps)


def _aiperf(asked: Asked) -> Sequence[str]:
    load = ("--concurrency", str(asked.users)) if asked.users else ("--request-rate", str(asked.rate))
    return ("-c", "from aiperf.cli import app; app()", "profile", "--model", "m", "--url", asked.url,
            "--endpoint-type", "chat", "--streaming", *load, "--request-count", str(asked.requests),
            "--synthetic-input-tokens-mean", "128", "--output-tokens-mean", str(asked.tokens), "--extra-inputs",
            "ignore_eos:true", "--tokenizer", asked.tokenizer, "--ui", "none", "--artifact-dir",
            str(asked.folder), "--export-level", "records")


def _aiperf_times(folder: Path) -> Times:
    ttft, itl = [], []
    for line in (folder / "profile_export.jsonl").read_text().splitlines():
        metrics = json.loads(line)["metrics"]
        ttft.append(metrics["time_to_first_token"]["value"])
        itl += metrics.get("inter_chunk_latency", {"value": []})["value"]
    return ttft, itl


def _servebench(asked: Asked) -> Sequence[str]:
    load = ("--concurrency", str(asked.users)) if asked.users else ("--rate", str(asked.rate))
    return ("-c", "from servebench.cli import app; app()", "run", "--url", f"{asked.url}/v1", "--model", "m", *load,
            "--num-requests", str(asked.requests), "--input-len", "128", "--output-len", str(asked.tokens),
            "--no-gpu", "--out", str(asked.folder / "out.json"))


def _servebench_times(folder: Path) -> Times:
    ttft, itl = [], []
    for one in json.loads((folder / "out.json").read_text())["levels"][0]["requests"]:
        if one["ok"]:
            ttft.append(one["ttft"])
            times = one["chunk_times"]
            itl += [after - before for before, after in pairwise(times)]
    return _milliseconds(ttft), _milliseconds(itl)


def _milliseconds(seconds: object) -> list[float]:
    return [value * 1e3 for value in seconds]  # type: ignore[attr-defined]


PEERS = {peer.name: peer for peer in (
    Peer("rust", _rust, _rust_times), Peer("vllm", _vllm, _vllm_times),
    Peer("aiperf", _aiperf, _aiperf_times), Peer("servebench", _servebench, _servebench_times))}
