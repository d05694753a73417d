"""Line shapes of vLLM 0.8 to 0.33: what each proves, and what it must not be taken to prove."""

import pytest

from rooftop.domain.launch import Fact
from rooftop.domain.vocabulary import FACTS, same, strongest
from rooftop.engines.vllm import ENGINE

W = "(Worker_TP0 pid=1) INFO 01-01 10:00:00 [x.py:1] "
V0 = "INFO 01-01 10:00:00 worker.py:267] "
CONFIG = ("(EngineCore_DP0 pid=9) INFO 01-01 10:00:00 [core.py:71] Initializing a V1 LLM engine (v0.10.0) with config: "
          "model='m', speculative_config=None, max_seq_len=40960, tensor_parallel_size=4, pipeline_parallel_size=2, "
          "disable_custom_all_reduce=False, quantization=fp8, enforce_eager=False, kv_cache_dtype=fp8_e4m3,  "
          "device_config=cuda, decoding_config=DecodingConfig(backend='auto', disable_fallback=False), seed=0, "
          "enable_prefix_caching=True, chunked_prefill_enabled=False, ")

Said = dict[str, tuple[Fact, str]]
SHAPES: list[tuple[str, Said]] = [
    (W + "GPU KV cache size: 75,840 tokens", {"kv.tokens": (75840, "built")}),
    (W + "GPU + host KV cache size: 1,000 tokens, Maximum concurrency for 2,048 tokens per request: 0.49x",
     {"kv.tokens": (1000, "built"), "limits.max_model_len": (2048, "resolved"), "kv.full_requests": (0.49, "built")}),
    (V0 + "Maximum concurrency for 32768 tokens per request: 5.65x",
     {"limits.max_model_len": (32768, "resolved"), "kv.full_requests": (5.65, "built")}),
    (V0 + "# cuda blocks: 9344, # CPU blocks: 2048", {}),
    (V0 + "model weights take 12.55GiB; non_torch_memory takes 0.16GiB; PyTorch activation peak memory takes 2.38GiB; "
     "the rest of the memory reserved for KV Cache is 56.18GiB.",
     {"memory.weights_gib": (12.55, "built"), "memory.kv_budget_gib": (56.18, "resolved")}),
    (V0 + "the current vLLM instance can use total_gpu_memory (79.19GiB) x gpu_memory_utilization (0.90) = 71.27GiB",
     {"limits.memory_share": (0.9, "resolved")}),
    (W + "Model loading took 14.9889 GB and 12.3 seconds",
     {"memory.weights_gib": (14.9889, "built"), "startup.load_s": (12.3, "built")}),
    (W + "Model loading took 7.64 GiB memory and 32.969258 seconds",
     {"memory.weights_gib": (7.64, "built"), "startup.load_s": (32.969258, "built")}),
    (W + "Loading weights took 26.93 seconds", {"startup.load_s": (26.93, "built")}),
    (W + "[backbone] torch.compile took 8.28 s in total", {"startup.compile_s": (8.28, "built")}),
    (W + "init engine (profile, create kv cache, warmup model) took 70.13 s (compilation: 20.1 s)",
     {"startup.total_s": (70.13, "built")}),
    (W + "init engine (profile, create kv cache, warmup model) took 45.20 seconds",
     {"startup.total_s": (45.2, "built")}),
    (W + "Graph capturing finished in 23 secs, took 0.55 GiB",
     {"startup.graphs_s": (23.0, "built"), "graphs.memory_gib": (0.55, "built")}),
    ("Capturing CUDA graphs (decode, FULL): 100%|##########| 35/35 [00:02<00:00, 17.0it/s]",
     {"graphs.decode.mode": ("full", "built"), "graphs.decode.sizes_count": (35, "built")}),
    ("Capturing CUDA graphs (decode, FULL):  40%|####      | 14/35 [00:02<00:00, 17.0it/s]",
     {"graphs.decode.mode": ("full", "resolved"), "graphs.decode.sizes_count": (35, "resolved")}),
    ("Capturing CUDA graph shapes: 100% 35/35 [00:48<00:00,  1.39s/it]", {"graphs.decode.sizes_count": (35, "built")}),
    ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|#| ", {"graphs.prefill.mode": ("piecewise",
     "built")}),
    ("Capturing CUDA graphs (FULL): 100%|##########| 9/9 [00:02<00:00, 17.0it/s]",
     {"graphs.decode.mode": ("full", "built"), "graphs.decode.sizes_count": (9, "built")}),
    ("Capturing CUDA graphs (PIECEWISE): 100%|##########| 9/9 [00:02<00:00, 17.0it/s]",
     {"graphs.prefill.mode": ("piecewise", "built"), "graphs.prefill.sizes_count": (9, "built")}),
    ("Capturing CUDA graph shapes: 100%|##########| 35/35 [00:20<00:00,  1.70it/s]",
     {"graphs.decode.sizes_count": (35, "built")}),
    (W + "Profiling CUDA graph memory: PIECEWISE=13 (largest=80), FULL=7 (largest=16)",
     {"graphs.decode.mode": ("full", "resolved"), "graphs.prefill.mode": ("piecewise", "resolved"),
      "graphs.decode.sizes_count": (7, "resolved"), "graphs.prefill.sizes_count": (13, "resolved"),
      "graphs.decode.max_batch": (16, "resolved")}),
    (W + "Capping cudagraph capture sizes from max 512 to 352 to fit Mamba cache blocks (361 blocks available).",
     {"graphs.decode.max_batch": (352, "resolved")}),
    (V0 + "Prefix cache hit rate: GPU: 26.68%, CPU: 0.00%",
     {"prefix_cache.hit_rate": (0.2668, "used"), "prefix_cache.enabled": (True, "used")}),
    (W + "Cudagraph is disabled under eager mode",
     {"graphs.decode.mode": ("off", "resolved"), "graphs.prefill.mode": ("off", "resolved")}),
    (W + "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for attention backend FlashInferBackend "
     "(support: AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE); setting cudagraph_mode=PIECEWISE",
     {"graphs.refused_mode": ("full_and_piecewise", "asked"), "graphs.refused_by": ("flashinferbackend", "resolved"),
      "attention.backend": ("flashinfer", "resolved"), "spec.enabled": (True, "resolved"),
      "graphs.decode.mode": ("piecewise", "resolved"), "graphs.prefill.mode": ("piecewise", "resolved")}),
    (W + "KV connector LMCacheConnectorV1 requires PIECEWISE CUDA graph mode due to layerwise async operations that "
     "cannot be captured in CUDA graphs. Overriding cudagraph_mode from FULL_AND_PIECEWISE to PIECEWISE.",
     {"graphs.refused_mode": ("full_and_piecewise", "asked"), "graphs.refused_by": ("lmcacheconnectorv1", "resolved"),
      "graphs.decode.mode": ("piecewise", "resolved"), "graphs.prefill.mode": ("piecewise", "resolved")}),
    (W + "Cudagraph mode CUDAGraphMode.FULL_AND_PIECEWISE is not compatible with compilation mode "
     "0.Overriding to NONE.",
     {"graphs.refused_mode": ("full_and_piecewise", "asked"), "graphs.refused_by": ("0", "resolved"),
      "graphs.decode.mode": ("off", "resolved"), "graphs.prefill.mode": ("off", "resolved")}),
    (W + "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER'].",
     {"attention.backend": ("flash_attn", "resolved")}),
    (W + "Using AttentionBackendEnum.FLASHINFER backend.", {"attention.backend": ("flashinfer", "resolved")}),
    (W + "Using FlashInfer backend on V1 engine by default for Blackwell (SM 10.0) GPUs.",
     {"attention.backend": ("flashinfer", "resolved")}),
    (W + "Using Triton MLA backend on V1 engine.", {"attention.backend": ("triton_mla", "resolved")}),
    (V0 + "Using Flash Attention backend.", {"attention.backend": ("flash_attn", "resolved")}),
    (W + "Using ROCM_AITER_FA backend (selected via --attention-backend).", {"attention.backend": ("rocm_aiter_fa",
     "resolved")}),
    (W + "Using backend AttentionBackendEnum.FLASH_ATTN for vit attention", {}),
    (W + "Using Flash Attention backend for ViT model.", {}),
    (W + "Using FlashInfer MLA prefill backend.", {}),
    (W + "Using triton Mamba SSU backend.", {}),
    (W + "Using LBHNC KV cache layout.", {}),
    ("(Worker pid=1) INFO 01-01 10:00:00 [mxfp4.py:100] Using Triton backend",
     {"moe.backend": ("triton", "resolved"), "quant.method": ("mxfp4", "resolved")}),
    (W + "Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'].",
     {"moe.backend": ("marlin", "resolved"), "quant.method": ("nvfp4", "resolved")}),
    (W + "Using TRITON Fp8 MoE backend out of potential backends: ['TRITON'].",
     {"moe.backend": ("triton", "resolved"), "quant.method": ("fp8", "resolved")}),
    (W + "Using DeepGEMM backend for FP8 MoE", {"moe.backend": ("deepgemm", "resolved"), "quant.method": ("fp8",
     "resolved")}),
    (W + "Using 'CPU' WNA16 MoE backend.", {"moe.backend": ("cpu", "resolved"), "quant.method": ("wna16", "resolved")}),
    (W + "NvFp4 MoE backend 'FLASHINFER_TRTLLM' does not support the deployment configuration since it is old.", {}),
    (W + "Using default MoE config. Performance might be sub-optimal! Config file not found at /x/E=8.json",
     {"moe.kernel_table": ("default", "built")}),
    (W + "Using configuration from /x/E=8,N=1.json for MoE layer.", {"moe.kernel_table": ("exact", "built")}),
    (W + "Using naive all2all manager.", {"moe.a2a_backend": ("naive", "resolved")}),
    (W + "Using ['CUSTOM', 'PYNCCL'] all-reduce backends (in dispatch order) for group 'tp:0' out of "
     "potential backends: "
     "['FLASHINFER', 'CUSTOM', 'PYNCCL'].", {"allreduce.backend": ("custom", "resolved")}),
    (W + "Registering 4480 cuda graph addresses", {"allreduce.custom": (True, "built")}),
    (W + "Custom allreduce is disabled due to an unsupported world size: 3.", {"allreduce.custom": (False, "built")}),
    (W + "Selected CutlassFP8ScaledMMLinearKernel for ModelOptFp8LinearMethod",
     {"quant.linear_kernel": ("cutlassfp8scaledmmlinearkernel", "resolved")}),
    (W + "Asynchronous scheduling is enabled.", {"overlap.enabled": (True, "resolved")}),
    (W + "Async scheduling not supported with ngram-based speculative decoding and will be disabled.",
     {"overlap.enabled": (False, "resolved")}),
    (W + "Using fp8_e5m2 data type to store kv cache. It reduces the GPU memory footprint.",
     {"kv.dtype": ("fp8_e5m2", "resolved")}),
    (W + "SpecDecoding metrics: Mean acceptance length: 2.31, Accepted throughput: 9.1 tokens/s, Accepted: 91 tokens",
     {"spec.enabled": (True, "used"), "spec.accept_length": (2.31, "used")}),
    (V0.replace("worker", "metrics") + "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 42.0 tokens/s, "
     "Running: 3 reqs, Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 0.4%, CPU KV cache usage: 0.0%.",
     {"live.prompt_tok_s": (1.0, "used"), "live.gen_tok_s": (42.0, "used"), "live.running": (3, "used"),
      "live.queued": (2, "used"), "live.kv_usage": (0.004, "used")}),
    (W + "Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 42.0 tokens/s, Running: 3 reqs, "
     "Waiting: 1 reqs, Deferred: 0 reqs, Preemptions: 4, GPU KV cache usage: 50.0%, Prefix cache hit rate: 12.5%",
     {"live.prompt_tok_s": (1.0, "used"), "live.gen_tok_s": (42.0, "used"), "live.running": (3, "used"),
      "live.queued": (1, "used"), "live.kv_usage": (0.5, "used"), "prefix_cache.hit_rate": (0.125, "used"),
      "prefix_cache.enabled": (True, "used")}),
    ("INFO 01-01 10:00:00 [api_server.py:1] args: Namespace(host=None, port=8000, tensor_parallel_size=2, "
     "pipeline_parallel_size=1, max_num_seqs=None, gpu_memory_utilization=0.9, quantization=None, enforce_eager=False)",
     {"layout.tp": (2, "asked"), "layout.pp": (1, "asked"), "limits.memory_share": (0.9, "asked")}),
    ("$ vllm serve m -tp 2 --max-num-seqs=64 --no-enable-prefix-caching --enforce-eager --enable-expert-parallel",
     {"layout.tp": (2, "asked"), "layout.ep": (2, "asked"), "limits.max_running": (64, "asked"),
      "prefix_cache.enabled": (False, "asked"), "graphs.decode.mode": ("off", "asked"),
      "graphs.prefill.mode": ("off", "asked")}),
    (CONFIG + 'compilation_config={"level":3,"use_cudagraph":true,"full_cuda_graph":false,"max_capture_size":512}',
     {"layout.tp": (4, "resolved"), "layout.pp": (2, "resolved"), "limits.max_model_len": (40960, "resolved"),
      "quant.method": ("fp8", "resolved"), "kv.dtype": ("fp8_e4m3", "resolved"), "spec.enabled": (False, "resolved"),
      "prefix_cache.enabled": (True, "resolved"), "graphs.decode.mode": ("piecewise", "resolved"),
      "graphs.prefill.mode": ("piecewise", "resolved"), "graphs.decode.max_batch": (512, "resolved")}),
    (W + "non-default args: {'attention_config': {'backend': 'FLASHINFER'}, 'kernel_config': {'moe_backend': "
     "'marlin'}}",
     {"attention.backend": ("flashinfer", "asked"), "moe.backend": ("marlin", "asked")}),
    (W + "non-default args: {'attention_config': AttentionConfig(backend=<AttentionBackendEnum.TRITON_ATTN: "
     "'x'>, a=1)}",
     {"attention.backend": ("triton_attn", "asked")}),
    ("ValueError: The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
     {"limits.max_model_len": (4096, "resolved")}),
    ("ValueError: World size (16) is larger than the number of available GPUs (8) in this node.",
     {"layout.world_size": (16, "resolved")}),
    ("node0:1:2 [1] NCCL INFO Channel 00/02 : 0[0] -> 1[1] via P2P/CUMEM",
     {"nccl.transport": ("p2p", "built"), "layout.ranks_seen": ("gpu1", "built")}),
    ("node0:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IBext_v8/0/GDRDMA",
     {"nccl.transport": ("net_ib", "built"), "nccl.gpu_direct": (True, "built")}),
    ("node0:1:2 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels",
     {"nccl.channels": (24, "built")}),
    ("node0:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
     {"nccl.gpu_direct": (False, "built")}),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 23.6 GiB",
     {"error.needed_bytes": (2147483648.0, "resolved"), "error.gpu": (3, "resolved"),
      "layout.ranks_seen": ("gpu3", "built")}),
    ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.",
     {"error.needed_bytes": (147456.0, "resolved"), "error.limit_bytes": (101376, "resolved")}),
    ("ValueError: Free memory on device cuda:1 (3.4/23.6 GiB) on startup is less than desired GPU memory utilization "
     "(0.92, 21.7 GiB).", {"memory.free_gib": (3.4, "built"), "limits.memory_share": (0.92, "resolved"),
                           "error.gpu": (1, "resolved"), "layout.ranks_seen": ("gpu1", "built")}),
]


def read(*lines: str) -> Said:
    return {fact: (said.value, said.level) for fact, said in strongest(ENGINE.witness.read_log(lines)).items()}


@pytest.mark.parametrize(("line", "expected"), SHAPES, ids=[line[-50:] for line, _ in SHAPES])
def test_shape(line: str, expected: Said) -> None:
    found = read(line)
    assert set(found) == set(expected)
    for fact, (value, level) in expected.items():
        assert same(fact, found[fact][0], value), (fact, found[fact])
        assert found[fact][1] == level, fact


@pytest.mark.parametrize("prefix", ["", "vllm-1  | ", "Aug 25 19:32:10 host vllm[7222]: ", "\x1b[0;36m", "│ ",
                                    "2026-01-01T00:00:00Z stdout F "])
def test_foreign_prefixes(prefix: str) -> None:
    assert read(prefix + W + "GPU KV cache size: 7 tokens")["kv.tokens"] == (7, "built")
    assert read(prefix + W.replace("TP0", "TP3") + "x")["layout.ranks_seen"] == ("tp3", "built")


def test_processes_within_processes() -> None:
    line = ("(EngineCore_DP1 pid=9) (Worker_DP1_TP1_EP3 pid=3) INFO 01-01 10:00:00 [l.py:1] [EP Rank 3/4] Expert "
            "parallelism is enabled. Local/global number of experts: 16/64.")
    assert read(line) == {"layout.ep": (4, "built"), "layout.tp": (2, "built"), "layout.dp": (2, "built"),
                          "layout.ranks_seen": ("dp1 tp1 ep3", "built")}
    assert "layout.tp" not in read(line.replace("DP1_TP1_EP3", "TP1_EP3").replace("DP1", "DP0"))
    assert read("(VllmWorker TP1 pid=3) hello") == {"layout.ranks_seen": ("tp1", "built")}


def test_messages_written_into_each_other() -> None:
    sample = ("INFO 01-01 10:00:0{0} [l.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
              "throughput: 9.{0} tokens/s, Running: {0} reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%")
    assert read("".join(sample.format(count) for count in (1, 2, 3)))["live.running"] == (3, "used")
    glued = ("Capturing CUDA graph shapes: 100%|#| 11/11 [00:00<?, ?it/s](VllmWorkerProcess pid=2) INFO 01-01 10:00:00 "
             "m.py:1] Graph capturing finished in 7 secs, took 0.2 GiB")
    found = read(glued)
    assert found["graphs.decode.sizes_count"] == (11, "built")
    assert found["startup.graphs_s"] == (7.0, "built")


RANK = "INFO 01-01 10:00:00 [p.py:1] rank {} in world size {} is assigned as DP rank {}, PP rank {}, TP rank {}"


@pytest.mark.parametrize(("lines", "expected"), [
    ((RANK.format(5, 8, 0, 0, 5),), {"layout.tp": 8, "layout.pp": 1, "layout.dp": 1}),
    ((RANK.format(7, 8, 0, 1, 3),), {"layout.tp": 4, "layout.pp": 2, "layout.dp": 1}),
    ((RANK.format(1, 8, 0, 0, 1),), {}),
    ((RANK.format(0, 1, 0, 0, 0),), {"layout.tp": 1, "layout.pp": 1, "layout.dp": 1}),
    ((RANK.format(3, 4, 1, 0, 1),), {"layout.tp": 2, "layout.pp": 1, "layout.dp": 2}),
    ((RANK.format(0, 4, 0, 0, 0), "(Worker_PP1_TP1 pid=1) x"), {"layout.tp": 2, "layout.pp": 2, "layout.dp": 1}),
    ((RANK.format(0, 8, 0, 0, 0), "(Worker_TP7_EP7 pid=1) x"),
     {"layout.tp": 8, "layout.pp": 1, "layout.dp": 1, "layout.ep": 8}),
    ((RANK.format(0, 2, 0, 0, 0), RANK.format(0, 4, 0, 0, 0), "(Worker_TP1 pid=1) x"), {}),
    ((RANK.format(0, 999_999_999, 0, 0, 0),), {}),
])
def test_sizes_that_ranks_prove(lines: tuple[str, ...], expected: dict[str, int]) -> None:
    found = read(*lines)
    axes = {fact: value for fact, (value, level) in found.items()
            if fact in ("layout.tp", "layout.pp", "layout.dp", "layout.ep") and level == "built"}
    assert axes == expected


def test_tables_of_settings_over_several_lines() -> None:
    assert read("(APIServer pid=1) INFO 02-07 15:44:24 non-default args: {", "  'model': 'm',", "  'max_num_seqs': 7,",
                "}", W + "x") == {"limits.max_running": (7, "asked")}
    found = read(CONFIG.partition("model=")[0], "  model='m', max_seq_len=16384,", "  tensor_parallel_size=2, seed=0",
                 W + "pipeline_parallel_size=9")
    assert found == {"limits.max_model_len": (16384, "resolved"), "layout.tp": (2, "resolved")}


def test_eager_in_versions_that_name_no_graph_mode() -> None:
    found = read((CONFIG + 'compilation_config={"level":0,"use_cudagraph":true,"max_capture_size":512}').replace(
        "enforce_eager=False", "enforce_eager=True"))
    assert found["graphs.decode.mode"] == ("off", "resolved")
    assert "graphs.decode.max_batch" not in found


def test_command_over_several_lines() -> None:
    assert read("$ vllm serve m \\", "    --tensor-parallel-size 4 \\", "    --max-num-seqs 8",
    "--data-parallel-size 2") == {
        "layout.tp": (4, "asked"), "limits.max_running": (8, "asked")}
    assert read("docker run --gpus all vllm/vllm-openai:v0.9 --model m -tp=2") == {"layout.tp": (2, "asked")}


def test_configuration_line_without_its_beginning() -> None:
    cut = CONFIG[CONFIG.index("max_seq_len"):] + "compilation_config={'cudagraph_mode': <CUDAGraphMode.NONE: 0>"
    found = read(cut)
    assert found["layout.tp"] == (4, "resolved")
    assert found["graphs.decode.mode"] == ("off", "resolved")
    later = read(cut[cut.index("seed=0"):])
    assert later["prefix_cache.enabled"] == (True, "resolved")
    assert later["graphs.decode.mode"] == ("off", "resolved")


def test_drafter_has_its_own_backend_and_graphs() -> None:
    found = read(W + "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].",
                 W + "Loading drafter model...",
                 W + "Using FLASHINFER attention backend out of potential backends: ['F'].",
                 W + "Capturing model for Eagle speculator...",
                 "Capturing CUDA graphs (decode, FULL): 100%|##########| 9/9 [00:02<00:00, 17.0it/s]")
    assert found["attention.backend"] == ("flash_attn", "resolved")
    assert found["attention.draft_backend"] == ("flashinfer", "resolved")
    assert "graphs.decode.sizes_count" not in found
    experts = read(W + "Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'].",
    W + "Loading drafter model...",
                   W + "Using FlashInfer CUTLASS Unquantized MoE backend out of potential backends: ['TRITON'].")
    assert experts["moe.backend"] == ("marlin", "resolved")
    assert experts["quant.method"] == ("nvfp4", "resolved")


def test_begin_without_end_is_no_proof() -> None:
    begun = read(CONFIG + "compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, "
                 "'max_cudagraph_capture_size': 256}", W + "Starting to load model m...")
    assert begun["graphs.decode.mode"] == ("full", "resolved")
    assert not [fact for fact, (_, level) in begun.items() if level in ("built", "used")]


def test_the_end_of_capture_proves_the_mode_that_was_resolved() -> None:
    ended = read(CONFIG + "compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>}",
                 W + "Graph capturing finished in 5 secs, took 0.20 GiB")
    assert ended["graphs.decode.mode"] == ("full", "built")
    assert ended["graphs.prefill.mode"] == ("piecewise", "built")


def test_share_of_steps_with_graphs() -> None:
    table = ("**CUDAGraph Stats:**", "| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |",
             "|-----------------|---------------|--------------|--------------|-------|",
             "| 4               | 4             | 0            | FULL         | 30    |",
             "| 700             | 700           | 0            | NONE         | 10    |")
    assert read(*table)["graphs.decode.used_share"] == (0.75, "used")


def test_progress_bars_in_one_line() -> None:
    bar = "Capturing CUDA graphs (decode, FULL): {:3}%|#| {}/4 [00:00]"
    assert read("\r".join(bar.format(25 * done, done) for done in range(5)))["graphs.decode.mode"] == ("full", "built")


def test_words_are_of_the_vocabulary() -> None:
    for line, _ in SHAPES:
        for said in ENGINE.witness.read_log((line,)):
            assert said.level in FACTS[said.fact].levels
