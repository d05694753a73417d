"""Why SGLang fails or does less than asked: each cause from lines of several versions, and what is none."""

import pytest

from rooftop.domain.vocabulary import ERRORS
from rooftop.engines._sglang_causes import CAUSES
from rooftop.engines.sglang import ENGINE

T = "[2026-01-01 10:00:00"
HIT = f"{T} TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
FRAME = '  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/{}", line 10, in {}\n    {}\n'
QUIT = f"\n{T}] Received sigquit from a child process. It usually means the child failed."
READY = f"{T}] The server is fired up and ready to roll!\n"


def trace(file: str, function: str, source: str, exception: str) -> str:
    return HIT + FRAME.format(file, function, source) + exception + QUIT


CASES: list[tuple[str, str, str, str]] = [
    # arguments
    ("flag_ambiguous", "ambiguous", "sglang serve: error: ambiguous option: --cuda-graph-max-bs could match "
     "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill", "--cuda-graph-max-bs-decode"),
    ("unknown_flag", "renamed", "launch_server.py: error: unrecognized arguments: --nsa-decode-backend fa3",
     "dsa-decode-backend"),
    ("unknown_flag", "underscore", "launch_server.py: error: unrecognized arguments: --reasoning_parser kimi_k2",
     "write --reasoning-parser"),
    ("unknown_flag", "too new", "launch_server.py: error: unrecognized arguments: --attn-dp-size 8", "too old"),
    ("unknown_flag", "choice", "sglang serve: error: argument --attention-backend: invalid choice: 'fa9' (choose "
     "from ...)",
     "--attention-backend"),
    # memory
    ("no_memory_for_kv", "asked for more", trace("model_executor/pool_configurator.py", "__post_init__", "raise "
     "RuntimeError(",
     "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."), "--mem-fraction-static"),
    ("oom_compute", "FlashInfer's workspace", trace("layers/attention/flashinfer_backend.py", "plan", "fast_plan(",
     "RuntimeError: Error in function 'aligned_alloc' at allocator.h:49: Failed to allocate memory for "
     "batch_prefill_tmp_v with size 402653184 and alignment 16 in AlignedAllocator"), "402653184 bytes"),
    ("kv_capacity_bound", "one request does not fit", trace("managers/schedule_batch.py", "retract_decode", "), (",
     "AssertionError: No space left for only one request"), "--max-running-requests"),
    ("worker_died", "a fault of an AMD kernel",
     "Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f. Reason: "
     "Unknown.\nFatal Python error: Aborted", "AMD_SERIALIZE_KERNEL"),
    ("kernel_missing_for_gpu", "TllmGenFmhaRunner", trace("layers/attention/trtllm_mha_backend.py", "forward", "f(",
     "RuntimeError: Error in function 'TllmGenFmhaRunner' at fmhaRunner.cuh:30: Unsupported archi"), "backend"),
    ("no_memory_for_kv", "names the share", trace("mem_cache/kv_cache_configurator.py", "f", "raise ValueError(",
     "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.8. Raise "
     "--mem-fraction-static above 0.873 (minimum viable = 0.85)."), "0.873"),
    ("no_memory_for_kv", "negative",
     f"{T} TP0] max_total_tokens=131072 is larger than the profiled value -561981. Use", "no KV"),
    ("kv_too_small_for_context", "pool", f"{T} TP0] KV pool holds 59862 tokens, fewer than --context-length 163840. "
     f"One",
     "59862"),
    ("oom_weights", "loading", trace("model_executor/model_runner.py", "load_model", "self.model = get_model(",
     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total capacity of 23 GiB"),
     "smaller weight format"),
    ("oom_kv", "pool", trace("mem_cache/memory_pool.py", "_create_buffers", "torch.zeros(",
     "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."), "--max-total-tokens"),
    ("oom_graph_capture", "capture", trace("model_executor/cuda_graph_runner.py", "__init__", "raise Exception(",
     "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 MiB."),
     "--mem-fraction-static"),
    ("oom_graph_capture", "without frames", f"{T} TP0] Capture cuda graph bs [1, 2]\n"
     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.", "graphs on"),
    ("oom_compute", "a step", READY + trace("managers/scheduler.py", "event_loop_overlap", "result = "
     "self.run_batch(batch)",
     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."), "--chunked-prefill-size"),
    ("peer_process_holds_memory", "unbalanced", trace("model_executor/model_runner.py", "init", "raise ValueError(",
     "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes."), "free it"),
    # layout
    ("heads_not_divisible", "divide", trace("distributed/utils.py", "ensure_divisibility", "assert numerator % "
     "denominator == 0",
     "AssertionError: 12 is not divisible by 24"), "12 by 24"),
    ("heads_not_divisible", "no words", trace("models/llama.py", "__init__", "assert self.total_num_heads % tp_size "
     "== 0",
     "AssertionError"), "attention heads"),
    ("fp8_block_not_divisible", "experts", trace("layers/moe/ep_moe/layer.py", "create_weights", "raise ValueError(",
     "ValueError: The output_size of gate's and up's weight = 64 is not divisible by weight quantization block_n = "
     "128."), "64"),
    ("fp8_block_not_divisible", "marlin", "ValueError: Weight input_size_per_partition = 352 is not divisible by "
     "min_thread_k = "
     "128. Consider reducing tensor_parallel_size or running with --quantization gptq.", "352"),
    ("layout_not_supported", "pipeline", "AssertionError: Pipeline parallelism is not compatible with overlap "
     "schedule, "
     "speculative decoding, mixed chunked prefill.", "rule"),
    ("layout_not_supported", "nodes", "AssertionError: tp_size must be divisible by number of nodes", "rule"),
    ("layout_not_supported", "too few GPUs", trace("model_executor/model_runner.py", "init_torch_distributed",
     "torch.get_device_module(self.device).set_device(self.gpu_id)",
     "RuntimeError: CUDA error: invalid device ordinal"), "rule"),
    # kernels
    ("kernel_missing_for_gpu", "image", trace("layers/layernorm.py", "forward_cuda", "rmsnorm(x)",
     "RuntimeError: RMSNorm failed with error code no kernel image is available for execution on the device"), "build"),
    ("kernel_missing_for_gpu", "ptxas", "subprocess.CalledProcessError: Command '/x/ptxas -v --gpu-name=sm_120 "
     "/tmp/t.ptx' "
     "returned non-zero exit status 255.", "build"),
    ("kernel_missing_for_gpu", "format", "ValueError: The quantization method awq_marlin is not supported for the "
     "current GPU. "
     "Minimum capability: 80. Current capability: 75.", "format"),
    ("kernel_shared_memory", "triton", "triton.runtime.errors.OutOfResources: out of resource: shared memory, "
     "Required: 147456, "
     "Hardware limit: 101376. Reducing block sizes or `num_stages` may help." + QUIT, "147456"),
    ("cuda_driver_mismatch", "driver", "RuntimeError: The NVIDIA driver on your system is too old (found version "
     "12020).", "match"),
    ("cuda_driver_mismatch", "symbol", "ImportError: /x/common_ops.abi3.so: undefined symbol: _ZN3c104cuda", "match"),
    # model and host
    ("model_not_found", "hub", "OSError: foo/bar is not a local folder and is not a valid model identifier listed on "
     "'https://huggingface.co/models'", "path"),
    ("model_config_invalid", "architecture", "ValueError: Model architectures ['FooForCausalLM'] are not supported "
     "for now. "
     "Supported architectures: dict_keys([...])", "version"),
    ("model_config_invalid", "length", "ValueError: User-specified context_length (262144) is greater than the derived "
     "context_length (32768). This may lead to incorrect model outputs or CUDA errors.", "config.json"),
    ("port_in_use", "uvicorn", f"{T}] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', "
     f"30000): "
     "address already in use", "--port"),
    ("shm_too_small", "nccl", "node:1:2 [0] NCCL WARN Call to posix_fallocate failed : No space left on device",
     "/dev/shm"),
    ("nccl_error", "system", trace("distributed/parallel_state.py", "all_reduce", "torch.distributed.all_reduce(x)",
     "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1, unhandled system error"),
     "NCCL_DEBUG"),
    ("worker_died", "echo", f"{T} TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
     "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4321" + QUIT, "first"),
    ("worker_died", "capture echo", "Exception: Capture cuda graph failed: "
     "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] "
     "Connection closed by peer [10.0.0.1]:4321", "another rank"),
    ("worker_died", "killed", f"{T}] Rank 0 scheduler is dead. Please check if there are relevant logs.\n{T}] Exit "
     f"code: -9", "first"),
    ("worker_died", "load", "ValueError: TP rank 1 could finish the model loading, but there are other ranks that "
     "didn't finish "
     "loading. It is likely due to unexpected failures (e.g., OOM) or a slow node.", "first"),
    ("segfault_first_token", "served", READY + "Fatal Python error: Segmentation fault\n", "proves nothing"),
    ("worker_died", "crashed early", f"{T} TP0] Init torch distributed begin.\nFatal Python error: Segmentation "
     f"fault\n", "crashed"),
    ("hang_after_ready", "watchdog", READY + f"{T} TP3] Watchdog timeout (self.watchdog_timeout=300)" + QUIT, "py-spy"),
    ("hang_after_ready", "health", READY + f"{T}] Health check failed. Server couldn't get a response from "
     f"detokenizer for last "
     "20 seconds. tic start time: 10:00:00.", "py-spy"),
    ("p2p_hang", "silence", f"{T} TP0] Init torch distributed begin.\n{T} TP1] Init torch distributed begin.\n"
     f"{T} TP0] sglang is using nccl==2.27.3", "NCCL_P2P_DISABLE=1"),
    ("p2p_hang", "old words", f"{T} TP1] Init nccl begin.\n{T} TP0] Init nccl begin.", "NCCL_P2P_DISABLE=1"),
    # it runs, with less
    ("compile_in_progress_not_hang", "DeepGEMM", f"{T} TP0] Capture cuda graph bs [1, 2]\n{T} TP0] Entering DeepGEMM "
     f"JIT "
     "Pre-Compile session. It may take a long time\nDeepGEMM warmup:  26%|####  | 4000/16384 [02:00<05:00, "
     "19014.49it/s]", "wait"),
    ("compile_in_progress_not_hang", "autotune", f"{T} TP0] Running FlashInfer autotune...", "wait"),
    ("request_too_long", "context", "ValueError: The input (40000 tokens) is longer than the model's context length "
     "(32768 "
     "tokens).", "shorten"),
    ("graphs_downgraded", "pipeline", f"{T}] Disabling breakable prefill CUDA graph by default for pipeline "
     f"parallelism.", "graph"),
    ("graphs_downgraded", "DeepEP", f"{T}] Cuda graph is disabled because deepep_mode=`normal`", "graph"),
    ("p2p_unavailable", "NCCL", "node:1:2 [1] NCCL INFO P2P is disabled between connected GPUs 1 and 0.", "ACS"),
    ("p2p_unavailable", "through memory", "node:1:2 [1] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",
     "ACS"),
    ("allreduce_fallback", "PCIe", f"{T} TP1] CustomAllReduceV2 is disabled because it's not supported on more than "
     f"two PCIe-only "
     "GPUs.", "NCCL"),
    ("kernel_fallback", "table", f"{T}] Using default MoE kernel config. Performance might be sub-optimal! Config "
     f"file not found "
     "at /x/E=384.json", "tune"),
    ("kernel_fallback", "weights only", f"{T}] Your GPU does not have native support for FP8 computation but FP8 "
     f"quantization is "
     "being used. Weight-only FP8 compression will be used", "kernel"),
    ("kv_capacity_bound", "retraction", f"{T} TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, "
     f"#new_token_ratio: "
     "0.3000 -> 0.9000", "retracted"),
    ("kv_capacity_bound", "0.4", f"{T} TP0] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1 "
     f"-> 0.6", "KV"),
    ("kv_capacity_bound", "full", f"{T}] Decode batch, #running-req: 6, #token: 1920, token usage: 0.94, cuda graph: "
     f"True, gen "
     "throughput (token/s): 446.45, #queue-req: 5", "concurrency"),
    ("prefill_starves_decode", "rates", f"{T}] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, token "
     f"usage: 0.08, "
     f"#running-req: 3, #queue-req: 7, cuda graph: False, input throughput (token/s): 9000.00\n{T}] Decode batch, "
     f"#running-req: 3, "
     "#token: 19, token usage: 0.10, cuda graph: True, gen throughput (token/s): 30.00, #queue-req: 7",
     "--chunked-prefill-size"),
    ("graphs_not_used", "none", f"{T}] Decode batch, #running-req: 6, #token: 1920, token usage: 0.14, cuda graph: "
     f"False, gen "
     "throughput (token/s): 46.45, #queue-req: 0", "captured"),
    ("graph_ceiling_below_batch", "limits", f"{T}] Capture cuda graph bs [1, 2, 4, 8]\n{T}] "
     f"max_total_num_tokens=1000000, "
     "chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=4096", "2048 to 8"),
    ("graph_ceiling_below_batch", "seen", f"{T}] Decode batch, #running-req: 36, #token: 9, token usage: 0.16, cuda "
     f"graph: "
     f"False, gen throughput (token/s): 1262.64, #queue-req: 0\n{T}] Decode batch, #running-req: 28, #token: 9, token "
     "usage: 0.13, cuda graph: True, gen throughput (token/s): 1086.59, #queue-req: 0", "up to 28"),
    ("flag_not_effective", "cap", f"{T}] max_total_tokens=900000 is larger than the profiled value 500000. Use the "
     f"profiled value",
     "in force"),
    ("flag_not_effective", "limit", f"{T}] max_running_requests was reduced from the requested 512 to 64 (per dp "
     f"worker)", "in force"),
    ("slow_start", "loading", f"{T} TP0] Load weight end. elapsed=395.30 s, type=X, avail mem=14.57 GB, mem "
     f"usage=78.10 GB.", "disk"),
    ("slow_start", "draft graphs", f"{T} TP6] Capture draft cuda graph end. Time elapsed: 62.67 s. mem usage=0.21 "
     f"GB. avail "
     "mem=15.31 GB.", "capture"),
    ("slow_start", "kernels", "DeepGEMM warmup: 100%|####| 16384/16384 [12:44<00:00,  5.75it/s]\n" + READY, "cache"),
    ("partial_offload", "weights", f"{T}] server_args=ServerArgs(tp_size=1, cpu_offload_gb=20, dp_size=1)", "CPU"),
    ("warm_prefix_cache", "hits", f"{T}] Prefill batch, #new-seq: 1, #new-token: 10, #cached-token: 990, token "
     f"usage: 0.08, "
     "#running-req: 1, #queue-req: 0, cuda graph: False, input throughput (token/s): 9.00", "flush"),
    ("unknown", "no words", trace("managers/scheduler.py", "run", "raise Foo()", "FooError: the moon is full"), ""),
]


@pytest.mark.parametrize(("kind", "log", "remedy"), [
    pytest.param(kind, log, remedy, id=f"{kind}-{name}") for kind, name, log, remedy in CASES])
def test_cause(kind: str, log: str, remedy: str) -> None:
    fault = ENGINE.witness.fault(log.splitlines(), None)
    assert fault
    assert fault.kind == kind, fault
    assert remedy in fault.remedy
    assert fault.reason
    assert "{" not in fault.remedy
    assert "?" not in fault.remedy


def test_every_kind_that_sglang_can_show_has_a_case() -> None:
    never = {"degraded_start", "layout_poor"}
    assert {kind for kind, *_ in CASES} | never == set(ERRORS)


def test_kinds_are_of_the_vocabulary() -> None:
    assert {cause.kind for cause in CAUSES} <= set(ERRORS) | {"oom", "segfault"}


HEALTHY = [
    ("an import that a model needs", f"{T}] Ignore import error when loading sglang.srt.models.grok: 'x' object has "
     f"no attribute"),
    ("deprecated", f"{T}] '--enable-dp-attention' is deprecated and will be removed in a future release. Use "
     f"'--attn-dp-size'"),
    ("asked for", f"{T}] Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled' "
     f"(e.g. via ...)"),
    ("asked for, before", f"{T}] Disable piecewise CUDA graph because --disable-piecewise-cuda-graph is set"),
    ("linear layers that are not quantized", f"{T}] Acceleration for non-quantized schemes is not supported by "
     f"Compressed "
     "Tensors. Falling back to UnquantizedLinearMethod"),
    ("graphs cover the batch", f"{T}] Capture cuda graph bs [1, 2, 64]\n{T}] max_total_num_tokens=10000, "
     f"chunked_prefill_size=8192, "
     "max_prefill_tokens=16384, max_running_requests=64, context_len=4096"),
    ("graphs were always used", f"{T}] Capture cuda graph bs [1, 2]\n{T}] max_total_num_tokens=10000, "
     f"chunked_prefill_size=8192, "
     f"max_prefill_tokens=16384, max_running_requests=64, context_len=4096\n{T}] Decode batch, #running-req: 2, "
     f"#token: 9, token "
     "usage: 0.10, cuda graph: True, gen throughput (token/s): 30.00, #queue-req: 0"),
    ("an imbalance that was survived", f"{T} TP0] The memory capacity is unbalanced. Some GPUs may be occupied by "
     f"other "
     f"processes. min_per_gpu_memory=1\n{READY}"),
    ("a start at its beginning", f"{T} TP0] Init torch distributed begin.\n{T} TP0] Init torch distributed ends. mem "
     f"usage=0.10 GB"),
    ("a CPU has no graphs", f"{T}] server_args={{'device': 'cpu', 'tp_size': 2}}\n{T} TP0] Setup Custom allreduce "
     f"failed with .\n"
     f"{T}] Cuda graph is disabled because of using torch native attention backend\n{T}] Decode batch, #running-req: "
     f"2, #token: "
     "9, token usage: 0.10, cpu graph: False, gen throughput (token/s): 30.00, #queue-req: 0"),
]


@pytest.mark.parametrize("log", [pytest.param(log, id=name) for name, log in HEALTHY])
def test_nothing_wrong(log: str) -> None:
    assert ENGINE.witness.fault(log.splitlines(), None) is None


def test_the_first_cause_is_told_and_not_its_echo() -> None:
    log = (f"{T} TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
           "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 3 has a total capacity of 80 "
           "GiB\n"
           f"{T} TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
           "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4321" + QUIT)
    fault = ENGINE.witness.fault(log.splitlines(), 1)
    assert fault
    assert (fault.kind, fault.line) == ("oom_compute", 2)


@pytest.mark.parametrize(("log", "exit_code", "kind"), [
    ("", 0, None), ("", 3, "unknown"), ("", -9, "worker_died"), ("", -11, "worker_died"), (READY, -11,
     "segfault_first_token"),
    (READY + f"{T}] Using default MoE kernel config. Performance might be sub-optimal!", 0, None),
    (READY + trace("mem_cache/allocation.py", "f", "raise RuntimeError(", "RuntimeError: Prefill out of memory. Try "
     "to lower your "
                   "batch size."), 1, "kv_capacity_bound"),
    ("RuntimeError: CUDART error: peer access is not supported between these two devices" + QUIT, 1, "p2p_unavailable"),
])
def test_exit_codes(log: str, exit_code: int, kind: str | None) -> None:
    fault = ENGINE.witness.fault(log.splitlines(), exit_code)
    assert (fault.kind if fault else None) == kind


def test_last_phase() -> None:
    log = (f"{T}] server_args=ServerArgs(tp_size=2)\n{T} TP0] Init torch distributed begin.\n{T} TP0] Load weight "
     f"begin. avail "
           "mem=9.00 GB\n" + trace("models/x.py", "load_weights", "params_dict[name]",
           "KeyError: 'model.layers.0.foo'"))
    fault = ENGINE.witness.fault(log.splitlines(), 1)
    assert fault
    assert (fault.kind, fault.last_phase) == ("model_config_invalid", "weights")
