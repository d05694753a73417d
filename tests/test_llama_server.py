"""llama-server's flags over the wheel's parameters."""

import subprocess
import sys
from importlib import metadata

import pytest

from rooftop.domain.engine import Seat
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.engines.llamacpp import ENGINE
from rooftop.llama_server import main, parameters, parser

wheel = pytest.importorskip("xllamacpp")


def given(words: str) -> object:
    return parameters(parser().parse_args(words.split()))


@pytest.mark.parametrize(("words", "field", "value"), [
    ("-m a.gguf", "model.path", "a.gguf"),
    ("--port 8971", "port", 8971),
    ("--host 0.0.0.0", "hostnames", ["0.0.0.0"]),
    ("--alias tiny", "model_alias", {"tiny"}),
    ("", "n_parallel", -1),
    ("-np 8", "n_parallel", 8),
    ("--parallel 8", "n_parallel", 8),
    ("-c 4096", "n_ctx", 4096),
    ("-t 3", "cpuparams.n_threads", 3),
    ("--threads-batch 4", "cpuparams_batch.n_threads", 4),
    ("-b 64", "n_batch", 64),
    ("-ub 32", "n_ubatch", 32),
    ("--metrics", "endpoint_metrics", True),
    ("--no-slots", "endpoint_slots", False),
    ("--no-warmup", "warmup", False),
    ("--kv-unified", "kv_unified", True),
    ("--no-kv-offload", "no_kv_offload", True),
    ("--verbosity 4", "verbosity", 4),
    ("--cache-ram 0", "cache_ram_mib", 0),
    ("--slot-prompt-similarity 0.5", "slot_prompt_similarity", 0.5),
    ("-ctk q8_0", "cache_type_k", wheel.ggml_type.GGML_TYPE_Q8_0),
    ("--flash-attn on", "flash_attn_type", wheel.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED),
    ("--split-mode tensor", "split_mode", wheel.llama_split_mode.LLAMA_SPLIT_MODE_TENSOR),
    ("--load-mode mmap+mlock", "load_mode", wheel.llama_load_mode.LLAMA_LOAD_MODE_MMAP_MLOCK),
    ("--n-gpu-layers all", "n_gpu_layers", -2),
    ("-ngl 12", "n_gpu_layers", 12),
    ("--fit off", "fit_params", False),
])
def test_flags(words: str, field: str, value: object) -> None:
    made = given(words)
    for name in field.split("."):
        made = getattr(made, name)
    assert made == value


def test_tensor_split() -> None:
    assert given("-ts 3,1").tensor_split[:3] == [3.0, 1.0, 0.0]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("words", "said"), [
    ("-m a.gguf --max-num-seqs 4", "error: invalid argument: --max-num-seqs"),
    ("-m a.gguf --paral 4", "error: invalid argument: --paral"),
    ("--port 1", "error: no model"),
    ("-m a.gguf -ngl many", "error while handling argument"),
    ("-m a.gguf --port many", "error while handling argument"),
    ("-m a.gguf -ctk q9", "error while handling argument"),
    ("-m a.gguf --port", "error while handling argument"),
])
def test_a_wrong_command_line(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err


def test_it_takes_what_the_engine_gives() -> None:
    settings = {"parallel": 4, "ctx-size": 4096, "threads": 2, "threads-batch": 2, "batch-size": 64, "ubatch-size": 32,
                "cache-type-k": "q8_0", "cache-type-v": "q8_0", "flash-attn": True, "n-gpu-layers": "all",
                "tensor-split": "1,1", "warmup": False, "cache-prompt": False, "kv-unified": True, "cache-ram": 0,
                "cont-batching": True, "fit": False}
    plan = Plan(Model("tiny", "a.gguf"), "llamacpp", Layout(pp=2), tuple(Setting(*one) for one in settings.items()))
    words = ENGINE.command(plan, Seat((), 8971, cores=(0,))).argv
    parsed, unknown = parser().parse_known_args(words)
    assert unknown == []
    parameters(parsed)


def test_version_does_not_load_the_wheel() -> None:
    script = ("import sys; from rooftop.llama_server import main\ntry: main(['--version'])\n"
              "except SystemExit: print('xllamacpp' in sys.modules)")
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    assert done.stdout == f"xllamacpp {metadata.version('xllamacpp')}\nFalse\n"


def test_a_model_that_is_not_there_ends_with_one(tmp_path: object) -> None:
    done = subprocess.run((sys.executable, "-P", "-m", "rooftop.llama_server", "-m", "/nowhere/a.gguf"),
                          capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    fault = ENGINE.witness.fault(done.stderr.splitlines(), done.returncode)
    assert fault is not None
    assert fault.kind == "model_not_found"
