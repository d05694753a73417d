"""SGLang's line shapes from 0.4 to 0.5.23: what each proves, and what it must not be taken to prove."""

import pytest

from rooftop.domain.launch import Fact
from rooftop.domain.vocabulary import same, strongest
from rooftop.engines.sglang import ENGINE

T = "[2026-01-01 10:00:00"


def read(log: str) -> dict[str, tuple[Fact, str]]:
    found = strongest(ENGINE.witness.read_log(log.splitlines()))
    return {fact: (said.value, said.level) for fact, said in found.items()}


Facts = dict[str, tuple[Fact, str]]

CAPTURES: list[tuple[str, str, Facts]] = [
    ("0.4.3: no list, no memory; a bar without a name inside the capture",
     f"{T} TP0] Capture cuda graph begin. This can take up to several minutes.\n"
     "  0%|          | 0/23 [00:00<?, ?it/s]\n100%|##########| 23/23 [00:08<00:00,  2.59it/s]\n"
     f"{T} TP0] Capture cuda graph end. Time elapsed: 8.90 s",
     {"graphs.decode.mode": ("full", "built"), "graphs.decode.sizes_count": (23, "built"),
      "startup.graphs_s": (8.9, "built")}),
    ("0.4.6: a bar with free memory only",
     f"{T} TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=13.95 GB\n"
     "Capturing batches (avail_mem=12.55 GB):   0%|          | 0/23 [00:00<?, ?it/s]\n"
     "Capturing batches (avail_mem=9.72 GB): 100%|##########| 23/23 [00:08<00:00,  2.59it/s]\n"
     f"{T} TP0] Capture cuda graph end. Time elapsed: 8.90 s. mem usage=4.23 GB. avail mem=9.72 GB.",
     {"graphs.decode.mode": ("full", "built"), "graphs.decode.sizes_count": (23, "built"),
      "graphs.memory_gib": (4.23, "built"), "startup.graphs_s": (8.9, "built"), "memory.free_gib": (9.72, "built")}),
    ("autotune bars are not the capture's",
     f"{T} TP0] Capture target decode CUDA graph begin. backend=full, bs=[1, 2]\n"
     "[AutoTuner]: Tuning flashinfer::fused_moe: 100%|##########| 7/7 [00:08<00:00,  2.59it/s]\n",
     {"graphs.decode.mode": ("full", "resolved"), "graphs.decode.sizes_count": (2, "resolved"),
      "graphs.decode.max_batch": (2, "resolved")}),
    ("Kubernetes before the line, level and source after the stamp",
     "2026-06-24T17:38:03.765641375+02:00 stderr F [2026-06-24 17:38:03] WARNING server_args.py:1304: "
     "Attention backend not explicitly specified. Use fa3 backend by default.",
     {"attention.backend": ("fa3", "resolved")}),
    ("access logs behind Kubernetes say nothing",
     '2026-06-24T17:38:03.765641375Z stdout F INFO:     10.0.0.1:34 - "GET /health HTTP/1.1" 200 OK', {}),
    ("0.4.3: MLA", f"{T} TP0] MLA optimization is turned on. Use triton backend.",
     {"attention.backend": ("triton", "resolved")}),
    ("a prefill server's lines have other counts",
     f"{T} TP0] Prefill batch. #new-seq: 2, #new-token: 300, #cached-token: 100, token usage: 0.25, "
     "#unbootstrapped-req: 5, #queue-req: 3, #transferring-req: 4, input throughput (token/s): 812.5",
     {"live.queued": (3, "used"), "live.kv_usage": (0.25, "used"), "live.prompt_tok_s": (812.5, "used"),
      "prefix_cache.hit_rate": (0.25, "used"), "prefix_cache.enabled": (True, "used")}),
    ("0.5.6: decode, then piecewise prefill; the second end is not the decode graphs'",
     f"{T}] Capture cuda graph begin. This can take up to several minutes. avail mem=39.48 GB\n"
     f"{T}] Capture cuda graph bs [1, 2, 4, 8]\n"
     f"{T}] Capture cuda graph end. Time elapsed: 5.37 s. mem usage=1.44 GB. avail mem=38.05 GB.\n"
     f"{T}] Capture piecewise CUDA graph begin. avail mem=38.05 GB\n"
     f"{T}] Capture cuda graph num tokens [4, 8, 12]\n"
     f"{T}] Capture piecewise CUDA graph end. Time elapsed: 20.00 s. mem usage=9.00 GB. avail mem=29.05 GB.",
     {"graphs.decode.mode": ("full", "built"), "graphs.decode.sizes_count": (4, "built"),
      "graphs.decode.max_batch": (8, "built"), "graphs.memory_gib": (1.44, "built"),
      "startup.graphs_s": (5.37, "built"),
      "graphs.prefill.mode": ("piecewise", "built"), "graphs.prefill.sizes_count": (3, "built"),
      "memory.free_gib": (29.05, "built")}),
    ("begun on one rank, ended on another",
     f"{T} TP0] Capture cuda graph bs [1, 2]\n"
     f"{T} TP1] Capture cuda graph end. Time elapsed: 5.0 s. mem usage=1.00 GB. avail mem=8.00 GB.",
     {"layout.ranks_seen": ("tp1", "built"), "graphs.decode.mode": ("full", "built"),
      "graphs.decode.sizes_count": (2, "built"), "graphs.decode.max_batch": (2, "built"),
      "graphs.memory_gib": (1.0, "built"), "startup.graphs_s": (5.0, "built"), "memory.free_gib": (8.0, "built")}),
    ("NPU: the list keeps the word cuda",
     f"{T} DP1 TP1] Capture npu graph begin. This can take up to several minutes. avail mem=11.91 GB\n"
     f"{T} DP0 TP0] Capture cuda graph bs [40, 60, 80]\n"
     "Capturing batches (bs=60 avail_mem=10.71 GB):  33%|###  | 1/3 [00:02<00:13,  2.28s/it]",
     {"layout.ranks_seen": ("dp1 tp1", "built"), "graphs.decode.sizes_count": (3, "resolved"),
      "graphs.decode.max_batch": (80, "resolved"), "memory.free_gib": (11.91, "built")}),
    ("draft captures are not the target's",
     f"{T} TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=18.00 GB\n"
     f"{T} TP0] Capture cuda graph bs [1, 2, 3]\n"
     f"{T} TP0] Capture cuda graph end. Time elapsed: 12.11 s. mem usage=0.54 GB. avail mem=16.74 GB.\n"
     f"{T} TP0] Capture draft cuda graph begin. This can take up to several minutes. avail mem=16.00 GB\n"
     "Capturing batches (bs=1 avail_mem=15.31 GB): 100%|##########| 7/7 [00:10<00:00,  3.37it/s]\n"
     f"{T} TP6] Capture draft cuda graph end. Time elapsed: 62.67 s. mem usage=0.21 GB. avail mem=15.31 GB.\n"
     f"{T} TP0] Capture draft extend cuda graph end. Time elapsed: 3.00 s. mem usage=0.20 GB. avail mem=15.11 GB.",
     {"layout.ranks_seen": ("tp6", "built"), "graphs.decode.mode": ("full", "built"),
      "graphs.decode.sizes_count": (3, "built"), "graphs.decode.max_batch": (3, "built"),
      "graphs.memory_gib": (0.54, "built"), "startup.graphs_s": (12.11, "built"),
      "startup.draft_graphs_s": (62.67, "built"), "spec.enabled": (True, "built"),
      "memory.free_gib": (15.11, "built")}),
    ("0.5.14: sizes in the begin line, begin only",
     f"{T} TP0] Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2, 4], avail "
     f"mem=7.1 GB",
     {"graphs.decode.mode": ("full", "resolved"), "graphs.decode.sizes_count": (3, "resolved"),
      "graphs.decode.max_batch": (4, "resolved"), "memory.free_gib": (7.1, "built")}),
    ("0.5.23: sizes in the end line, of a verify phase with breakable graphs",
     f"{T} TP0] Capture target verify CUDA graph begin. backend=breakable, num_tokens_per_req=4, avail mem=7.10 GB\n"
     f"{T} TP0] Capture target verify CUDA graph end. bs=[1, 2, 16], elapsed=2.50 s, mem usage=0.75 GB, avail "
     f"mem=6.35 GB.",
     {"graphs.decode.mode": ("breakable", "built"), "graphs.decode.sizes_count": (3, "built"),
      "graphs.decode.max_batch": (16, "built"), "graphs.memory_gib": (0.75, "built"),
      "startup.graphs_s": (2.5, "built"),
      "spec.enabled": (True, "built"), "memory.free_gib": (6.35, "built")}),
    ("0.5.18: prefill ended, target drafts apart",
     f"{T}] Capture target prefill CUDA graph begin. backend=tc_piecewise, num_tokens=[4, 8], avail mem=5.00 GB\n"
     "Capturing num tokens (num_tokens=4 avail_mem=4.50 GB): 100%|##########| 2/2 [00:10<00:00,  3.37it/s]\n"
     f"{T}] Capture target prefill CUDA graph end. elapsed=4.00 s, mem usage=0.50 GB, avail mem=4.50 GB.\n"
     f"{T}] Capture draft decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2], avail mem=4.50 GB\n"
     f"{T}] Capture draft decode CUDA graph end. elapsed=1.25 s, mem usage=0.10 GB, avail mem=4.40 GB.",
     {"graphs.prefill.mode": ("piecewise", "built"), "graphs.prefill.sizes_count": (2, "built"),
      "spec.enabled": (True, "built"), "startup.draft_graphs_s": (1.25, "built"), "memory.free_gib": (4.4, "built")}),
    ("a CPU's graphs are none", f"{T}] Capture cpu graph begin. This can take up to several minutes. avail mem=5.00 "
     f"GB\n"
     f"{T}] Capture cpu graph end. Time elapsed: 3.0 s. mem usage=1.00 GB. avail mem=4.00 GB.",
     {"memory.free_gib": (4.0, "built")}),
    ("loading bars are no graphs", f"{T}] Capture cuda graph begin. This can take up to several minutes. avail "
     f"mem=5.00 GB\n"
     "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:01<00:00,  2.97it/s]\n"
     "DeepGEMM warmup: 100%|##########| 256/256 [00:44<00:00,  5.75it/s]", {"memory.free_gib": (5.0, "built")}),
    ("piecewise given up", f"{T}] Disable piecewise CUDA graph because some layers do not apply Standard GQA",
     {"graphs.prefill.mode": ("off", "built")}),
    ("breakable given up", f"{T}] Breakable CUDA graph is incompatible with LoRA; disabling prefill CUDA graph.",
     {"graphs.refused_mode": ("breakable", "asked"), "graphs.refused_by": ("lora", "resolved"),
      "graphs.prefill.mode": ("off", "resolved")}),
    ("given up for a pipeline", f"{T}] Disabling breakable prefill CUDA graph by default for pipeline parallelism.",
     {"graphs.refused_mode": ("breakable", "asked"), "graphs.refused_by": ("pipeline_parallelism", "resolved"),
      "graphs.prefill.mode": ("off", "resolved")}),
    ("given up for a backend", f"{T}] Disabling prefill CUDA graph (breakable) by default for the DeepSeek-V3 arch "
     f"on the "
     "trtllm_mla attention backend (a captured prefill graph ...)",
     {"graphs.refused_mode": ("breakable", "asked"), "graphs.refused_by": ("trtllm_mla", "resolved"),
      "graphs.prefill.mode": ("off", "resolved")}),
    ("off with DeepEP", f"{T}] Cuda graph is disabled because deepep_mode=`normal`",
     {"graphs.decode.mode": ("off", "resolved"), "graphs.prefill.mode": ("off", "resolved")}),
]


MEMORY: list[tuple[str, str, Facts]] = [
    ("0.4.0 load and limits",
     f"{T} TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=20.10 GB\n"
     f"{T} TP0] max_total_num_tokens=65536, max_prefill_tokens=16384, max_running_requests=2049, context_len=8192",
     {"memory.free_gib": (20.1, "built"), "kv.tokens": (65536, "built"), "limits.max_running": (2049, "resolved"),
      "limits.max_model_len": (8192, "resolved")}),
    ("0.4.3 KV without tokens",
     f"{T} TP0] KV Cache is allocated. K size: 10.00 GB, V size: 10.00 GB.", {"kv.gib_per_gpu": (20.0, "built")}),
    ("MLA, one size", f"{T} DP3 TP3] KV Cache is allocated. #tokens: 413466, KV size: 27.06 GB",
     {"layout.ranks_seen": ("dp3 tp3", "built"), "kv.tokens": (413466, "built"), "kv.gib_per_gpu": (27.06, "built")}),
    ("0.5.12 fp8", f"{T} TP0] Using KV cache dtype: torch.float8_e4m3fn\n"
     f"{T} TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 879872, K size: 13.43 GB, V size: 13.43 GB",
     {"kv.dtype": ("fp8_e4m3", "built"), "kv.tokens": (879872, "built"), "kv.gib_per_gpu": (26.86, "built")}),
    ("a format that the GPU lacks", "ValueError: The quantization method fp8 is not supported for the current GPU. "
     "Minimum capability: 89. Current capability: 80.", {"quant.method": ("fp8", "asked")}),
    ("dtype alone", f"{T}] Using KV cache dtype: torch.float8_e5m2", {"kv.dtype": ("fp8_e5m2", "resolved")}),
    ("an upper bound is no pool", f"{T}] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 900000, K size: "
     f"90.00 GB, "
     "V size: 90.00 GB", {"kv.dtype": ("bf16", "resolved"), "kv.tokens": (900000, "resolved")}),
    ("sized after capture", f"{T}] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 900000, KV size: 90.00 GB\n"
     f"{T}] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 700000, KV size: 70.00 GB, "
     "avail mem=4.00 GB\n"
     f"{T}] Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, #tokens: 700001, KV size: 71.00 "
     f"GB",
     {"kv.dtype": ("bf16", "built"), "kv.tokens": (700000, "built"), "kv.gib_per_gpu": (70.0, "built"),
      "memory.free_gib": (4.0, "built")}),
    ("a draft's pool is not the target's",
     f"{T}] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100, K size: 1.00 GB, V size: 1.00 GB\n"
     f"{T}] draft KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200, K size: 3.00 GB, V size: 3.00 GB",
     {"kv.dtype": ("bf16", "built"), "kv.tokens": (100, "built"), "kv.gib_per_gpu": (2.0, "built")}),
    ("budget", f"{T} DP0 TP0] The available memory for KV cache is 17.67 GB.", {"memory.kv_budget_gib": (17.67,
     "resolved")}),
    ("0.5.2 limits with chunk",
     f"{T} TP0] max_total_num_tokens=413466, chunked_prefill_size=-1, max_prefill_tokens=16384, "
     f"max_running_requests=256, "
     "context_len=163840, available_gpu_mem=11.50 GB",
     {"kv.tokens": (413466, "built"), "limits.chunk_tokens": (-1, "resolved"), "limits.max_running": (256, "resolved"),
      "limits.max_model_len": (163840, "resolved"), "memory.free_gib": (11.5, "built")}),
    ("a limit is lowered",
     f"{T}] max_running_requests was reduced from the requested 512 to 64 (per dp worker) due to the available KV",
     {"limits.max_running": (64, "resolved")}),
    ("speculation lowers it", f"{T}] Max running requests is reset to 48 for speculative decoding.",
     {"limits.max_running": (48, "resolved")}),
    ("state cache lowers it", f"{T}] max_running_requests is capped to 20 by the mamba state cache "
     f"(max_mamba_cache_size=80)",
     {"limits.max_running": (20, "resolved")}),
    ("attention replicas cut the chunk",
     f"{T}] DP attention is enabled. The chunked prefill size is adjusted to 2048 to avoid MoE kernel issues.",
     {"limits.chunk_tokens": (2048, "resolved")}),
    ("pool below context", f"{T} TP0] KV pool holds 59862 tokens, fewer than --context-length 163840. One full-length",
     {"limits.fitting_tokens": (59862, "resolved"), "limits.max_model_len": (163840, "resolved")}),
    ("the share to set", "ValueError: Loaded weights leave no GPU memory for the KV cache under "
     "--mem-fraction-static=0.8. "
     "Raise --mem-fraction-static above 0.873 (minimum viable = 1 - available/pre = 0.8512).",
     {"limits.memory_share_advised": (0.873, "resolved")}),
    ("load with format", f"{T} TP0] Load weight end. elapsed=95.30 s, type=DeepseekV3ForCausalLM, quant=fp8, fmt=e4m3, "
     "avail mem=14.57 GB, mem usage=78.10 GB.",
     {"startup.load_s": (95.3, "built"), "quant.method": ("fp8", "built"), "memory.weights_gib": (78.1, "built"),
      "memory.free_gib": (14.57, "built")}),
    ("last figure of each rank, the smallest of them",
     f"{T} TP0] Memory pool end. avail mem=5.00 GB\n{T} TP1] Memory pool end. avail mem=6.00 GB\n"
     f"{T} TP0] Load weight begin. avail mem=9.00 GB",
     {"layout.ranks_seen": ("tp1", "built"), "memory.free_gib": (6.0, "built")}),
]

STEPS: list[tuple[str, str, Facts]] = [
    ("0.4.0, no graph in the line",
     f"{T} TP0] Prefill batch. #new-seq: 4, #new-token: 600, #cached-token: 200, cache hit rate: 25.00%, token usage: "
     "0.02, #running-req: 3, #queue-req: 9\n"
     f"{T} TP0] Decode batch. #running-req: 36, #token: 958017, token usage: 0.56, gen throughput (token/s): 812.10, "
     "#queue-req: 2",
     {"live.running": (36, "used"), "live.queued": (2, "used"), "live.kv_usage": (0.56, "used"),
      "live.gen_tok_s": (812.1, "used"), "prefix_cache.hit_rate": (0.25, "used"),
      "prefix_cache.enabled": (True, "used")}),
    ("0.5.4 with a step number; three of four with a graph",
     "\n".join(f"{T} TP0] Decode batch [{n}], #running-req: 46, #token: 34901, token usage: 0.19, cuda graph: {used}, "
               f"gen throughput (token/s): 1447.08, #queue-req: 0, " for n, used in enumerate((False, True, True,
               True))),
     {"graphs.decode.used_share": (0.75, "used"), "live.running": (46, "used"), "live.queued": (0, "used"),
      "live.kv_usage": (0.19, "used"), "live.gen_tok_s": (1447.08, "used")}),
    ("speculation", f"{T}] Decode batch, #running-req: 1, #token: 29, token usage: 0.00, accept len: 3.12, accept "
     f"rate: 0.78, "
     "cuda graph: True, gen throughput (token/s): 230.00, #queue-req: 0",
     {"spec.accept_length": (3.12, "used"), "spec.enabled": (True, "used"), "graphs.decode.used_share": (1.0, "used"),
      "live.running": (1, "used"), "live.queued": (0, "used"), "live.kv_usage": (0.0, "used"),
      "live.gen_tok_s": (230.0, "used")}),
    ("hybrid: the full pool counts", f"{T}] Decode batch, #running-req: 4, #full token: 42, full token usage: 0.40, "
     f"#swa token: "
     "9, swa token usage: 0.90, mamba num: 5, mamba usage: 0.95, cuda graph: True, gen throughput (token/s): 9.5, "
     "#queue-req: 0",
     {"live.kv_usage": (0.4, "used"), "live.running": (4, "used"), "live.queued": (0, "used"),
      "live.gen_tok_s": (9.5, "used"), "graphs.decode.used_share": (1.0, "used")}),
    ("0.4.9 hybrid", f"{T}] Decode batch. #running-req: 4, #token: full=42, swa=9, token usage: full=0.40, swa=0.90, "
     f"cuda graph: "
     "True, gen throughput (token/s): 9.50, #queue-req: 1, timestamp: 2026-01-01T10:00:00",
     {"live.kv_usage": (0.4, "used"), "live.running": (4, "used"), "live.queued": (1, "used"),
      "live.gen_tok_s": (9.5, "used"), "graphs.decode.used_share": (1.0, "used")}),
    ("several ranks: the last of each, the largest of them",
     f"{T} DP0 TP0] Decode batch. #running-req: 9, #token: 1, token usage: 0.90, cuda graph: True, gen throughput "
     f"(token/s): "
     "90.00, #queue-req: 3, \n"
     f"{T} DP1 TP4] Decode batch. #running-req: 5, #token: 1, token usage: 0.50, cuda graph: False, gen throughput "
     f"(token/s): "
     "50.00, #queue-req: 0, \n"
     f"{T} DP0 TP0] Decode batch. #running-req: 2, #token: 1, token usage: 0.20, cuda graph: True, gen throughput "
     f"(token/s): "
     "20.00, #queue-req: 1, ",
     {"layout.ranks_seen": ("dp1 tp4", "built"), "live.running": (5, "used"), "live.queued": (1, "used"),
      "live.kv_usage": (0.5, "used"), "live.gen_tok_s": (50.0, "used"), "graphs.decode.used_share": (0.6667, "used")}),
    ("prefill rates", f"{T}] Prefill batch, #new-seq: 1, #new-token: 158, #cached-token: 0, token usage: 0.08, "
     f"#running-req: 31, "
     "#queue-req: 7, #pending-token: 0, cuda graph: True, input throughput (token/s): 559.53",
     {"live.prompt_tok_s": (559.53, "used"), "live.queued": (7, "used"), "live.kv_usage": (0.08, "used"),
      "prefix_cache.hit_rate": (0.0, "used")}),
    ("another program's prefix", "2026-01-04 20:35:53 INFO 151972 [scheduler_metrics_mixin.py:287] Decode batch. "
     "#running-req: "
     "48, #token: 3894, token usage: 0.00, accept len: 1.00, accept rate: 0.11, cuda graph: False, gen throughput "
     "(token/s): "
     "5452.63, #queue-req: 0, ",
     {"live.running": (48, "used"), "live.queued": (0, "used"), "live.kv_usage": (0.0, "used"),
      "live.gen_tok_s": (5452.63, "used"), "graphs.decode.used_share": (0.0, "used"),
      "spec.accept_length": (1.0, "used"),
      "spec.enabled": (True, "used")}),
]

KERNELS: list[tuple[str, str, Facts]] = [
    ("0.4.6", f"{T} TP0] Attention backend not set. Use flashinfer backend by default.",
     {"attention.backend": ("flashinfer", "resolved")}),
    ("0.5.2", f"{T} TP0] Attention backend not explicitly specified. Use fa3 backend by default.",
     {"attention.backend": ("fa3", "resolved")}),
    ("0.5.8", f"{T}] Attention backend not specified. Use trtllm_mha backend by default.",
     {"attention.backend": ("trtllm_mha", "resolved")}),
    ("deterministic", f"{T}] Attention backend not specified. Falling back to 'fa3' for deterministic inference.",
     {"attention.backend": ("fa3", "resolved")}),
    ("by architecture", f"{T}] Use trtllm_mla as attention backend on sm100 for DeepseekV3ForCausalLM",
     {"attention.backend": ("trtllm_mla", "resolved")}),
    ("sparse", f"{T}] Use dsa attention backend for DeepSeek with DSA.", {"attention.backend": ("dsa", "resolved")}),
    ("set back", f"{T}] FlashAttention3 only supports fp8_e4m3 if using FP8; Setting attention backend to triton.",
     {"attention.backend": ("triton", "resolved")}),
    ("two at once", f"{T}] Using hybrid attention backend for decode and prefill: decode_backend=flashinfer, "
     "prefill_backend=fa3.", {"attention.backend": ("flashinfer", "resolved")}),
    ("vision is another part", f"{T} TP0] Using fa3 as multimodal attention backend.\n"
     f"{T} TP0] Multimodal attention backend not set. Use triton_attn.", {}),
    ("linear attention is another part", f"{T}] Using hybrid linear attention backend for hybrid GDN models.", {}),
    ("drafter", f"{T}] Overriding draft attention backend to triton.", {"attention.draft_backend": ("triton",
     "resolved")}),
    ("experts by architecture", f"{T}] Use flashinfer_trtllm as MoE runner backend on sm100 for DeepseekV3ForCausalLM",
     {"moe.backend": ("flashinfer_trtllm", "resolved")}),
    ("tuned", f"{T} TP1] Using MoE kernel config from /x/configs/triton_3_2_0/E=128,N=384,device_name=X.json.",
     {"layout.ranks_seen": ("tp1", "built"), "moe.backend": ("triton", "built"),
      "moe.kernel_table": ("exact", "built")}),
    ("of another Triton", f"{T}] Config file not found at /x/E=1.json. Fallback to triton version 3.1.0 and use MoE "
     f"kernel "
     "config from /y/E=1.json. Performance might be sub-optimal!",
     {"moe.backend": ("triton", "built"), "moe.kernel_table": ("other_version", "built")}),
    ("0.4.0 untuned", f"{T}] Using default MoE config. Performance might be sub-optimal! Config file not found at /x",
     {"moe.kernel_table": ("default", "built")}),
    ("DeepGEMM experts", f"{T}] Try DeepGEMM JIT Compiling for <GROUPED_GEMM_NT_F8F8BF16_MASKED> N=4096, K=7168, "
     "num_groups=32 with all Ms.", {"moe.backend": ("deep_gemm", "built")}),
    ("DeepGEMM 0.4.6", f"{T}] Try DeepGEMM JIT Compiling for <gemm_fp8_fp8_bf16_nt> N=6144, K=2560, num_groups=1\n"
     f"{T}] Try DeepGEMM JIT Compiling for <m_grouped_gemm_fp8_fp8_bf16_nt_masked> N=512, K=128, num_groups=4",
     {"quant.linear_kernel": ("deep_gemm", "built"), "moe.backend": ("deep_gemm", "built")}),
    ("compressed tensors", f"{T}] Using CompressedTensorsWNA16MarlinMoEMethod", {"moe.backend": ("marlin",
     "resolved")}),
    ("a format is no kernel", f"{T}] Using CompressedTensorsW4A4Nvfp4MoE", {}),
    ("0.5.2 all-to-all", f"{T}] DeepEP MoE is enabled. The expert parallel size is adjusted to be the same as the "
     f"tensor "
     "parallel size[8].", {"moe.a2a_backend": ("deepep", "resolved"), "layout.ep": (8, "resolved"),
                           "layout.tp": (8, "resolved")}),
    ("0.5.23 all-to-all", f"{T}] deepep MoE is enabled. The expert parallel size is adjusted from 1 to the tensor "
     f"parallel "
     "size [4].", {"layout.ep": (4, "resolved"), "layout.tp": (4, "resolved"),
     "moe.a2a_backend": ("deepep", "resolved")}),
    ("checkpoint", f"{T} TP0] Detected fp8 checkpoint.", {"quant.method": ("fp8", "resolved")}),
    ("auto is no answer", f"{T}] MOE_RUNNER_BACKEND is not initialized, the backend will be automatically selected",
     {}),
]

LINKS: list[tuple[str, str, Facts]] = [
    ("old class", f"{T} TP1] Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.",
     {"layout.ranks_seen": ("tp1", "built"), "allreduce.custom": (False, "built")}),
    ("new class", f"{T} TP7] CustomAllReduceV2 is disabled because it's not supported on more than two PCIe-only GPUs.",
     {"layout.ranks_seen": ("tp7", "built"), "allreduce.custom": (False, "built")}),
    ("quick all-reduce is another", f"{T}] Custom quick allreduce is disabled because of missing custom quick "
     f"allreduce", {}),
    ("v2", f"{T}] All Reduce config: symmetric_memory = 32.00 MB, local_buffer = 16.00 MB, multicast = True, pull = "
     f"True",
     {"allreduce.custom": (True, "built"), "allreduce.backend": ("custom_all_reduce_v2", "built")}),
    ("PCIe", f"{T}] FlashInfer PCIe-IPC all-reduce enabled (world=8, workspace sized on first reduction)",
     {"allreduce.backend": ("flashinfer_pcie_ipc", "built")}),
    ("path", f"{T}] [AR] All-reduce call path: NCCL (custom AR disabled)",
     {"allreduce.backend": ("nccl", "resolved"), "allreduce.custom": (False, "resolved")}),
    ("symmetric memory", f"{T}] TorchSymmMemCommunicator: Device capability 12.0 not supported, communicator is not "
     "available.", {"allreduce.symm_mem": (False, "built")}),
    ("NCCL", "node:1:2 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
     "node:1:2 [1] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
     "node:1:2 [1] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels",
     {"layout.ranks_seen": ("gpu1", "built"), "nccl.transport": ("mixed", "built"), "nccl.channels": (24, "built")}),
    ("network", "node:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IBext_v8/0/GDRDMA\n"
     "node:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled\n"
     "node:1:2 [0] NCCL INFO GPU Direct RDMA (DMABUF) enabled for HCA 0 'mlx5_0'",
     {"nccl.transport": ("net_ib", "built"), "nccl.gpu_direct": (True, "built")}),
    ("a global rank is no axis", "[rank3]:[W101 16:30:43 ProcessGroupNCCL.cpp:1] [PG ID 2 PG GUID 3 Rank 3] hello", {}),
    ("radix", f"{T}] Tree cache initialized: source=default impl=HiRadixCache hybrid_swa=False",
     {"prefix_cache.enabled": (True, "built")}),
    ("switched off", f"{T}] Radix cache is disabled because --enable-mis is set.",
     {"prefix_cache.enabled": (False, "resolved")}),
    ("decode server", f"{T}] KV cache is forced as chunk cache for decode server", {"prefix_cache.enabled": (False,
     "resolved")}),
    ("overlap", f"{T}] Overlap scheduler is disabled because of using eagle speculative decoding.",
     {"overlap.enabled": (False, "resolved")}),
    ("all at once", f"{T}] The radix cache, chunked prefill, and overlap scheduler are disabled because of using EAGLE",
     {"overlap.enabled": (False, "resolved")}),
]

SETTINGS: list[tuple[str, str, Facts]] = [
    ("0.4 dump", f"{T}] server_args=ServerArgs(model_path='/m', quantization='fp8', context_length=None, "
     "mem_fraction_static=0.88, max_running_requests=None, chunked_prefill_size=8192, tp_size=8, dp_size=8, ep_size=1, "
     "enable_dp_attention=True, attention_backend=None, speculative_algorithm='EAGLE', disable_radix_cache=True, "
     "disable_cuda_graph=False, cuda_graph_max_bs=160, disable_custom_all_reduce=True, disable_overlap_schedule=True, "
     "kv_cache_dtype='fp8_e5m2')",
     {"quant.method": ("fp8", "resolved"), "limits.memory_share": (0.88, "resolved"), "layout.tp": (8, "resolved"),
      "layout.dp": (1, "resolved"), "layout.attention_dp": (8, "resolved"), "layout.ep": (1, "resolved"),
      "limits.chunk_tokens": (8192, "resolved"), "spec.enabled": (True, "resolved"),
      "spec.method": ("eagle", "resolved"),
      "prefix_cache.enabled": (False, "resolved"), "graphs.decode.max_batch": (160, "resolved"),
      "allreduce.custom": (False, "resolved"), "overlap.enabled": (False, "resolved"),
      "kv.dtype": ("fp8_e5m2", "resolved")}),
    ("cut on both sides", "s_config=None, tp_size=2, pp_size=1, max_running_requests=64, dp_size=1, "
     "enable_symm_mem=False, "
     "attention_backend='triton', moe_runner_backend='auto', disable_cuda_graph=True, enable_torch_symm_mem=Fal",
     {"layout.tp": (2, "resolved"), "layout.pp": (1, "resolved"), "layout.dp": (1, "resolved"),
      "limits.max_running": (64, "resolved"), "attention.backend": ("triton", "resolved"),
      "graphs.decode.mode": ("off", "resolved"), "graphs.prefill.mode": ("off", "resolved"),
      "allreduce.symm_mem": (False, "resolved")}),
    ("a cut number is none", "disable_radix_cache=False, kt_method='AMXINT4', tp_size=2, pp_size=1, dp_size=1, "
     "ep_size=1",
     {"layout.tp": (2, "resolved"), "layout.pp": (1, "resolved"), "layout.dp": (1, "resolved"),
      "layout.ep": (1, "resolved"), "prefix_cache.enabled": (True, "resolved")}),
    ("graphs by phase", f"{T}] server_args={{'tp_size': 4, 'cuda_graph_config': {{'decode': {{'backend': 'full', "
     f"'max_bs': 128, "
     "'bs': [1, 2]}, 'prefill': {'backend': 'breakable', 'max_bs': 8192, 'bs': [4]}}, 'attn_dp_size': 4, 'dp_size': 1}",
     {"layout.tp": (4, "resolved"), "layout.attention_dp": (4, "resolved"), "layout.dp": (1, "resolved"),
      "graphs.decode.mode": ("full", "resolved"), "graphs.prefill.mode": ("breakable", "resolved"),
      "graphs.decode.max_batch": (128, "resolved")}),
    ("the engine's limit corrects the setting", f"{T}] server_args=ServerArgs(tp_size=2, max_running_requests=512, "
     "chunked_prefill_size=8192, context_length=None)\n"
     f"{T} TP1] max_total_num_tokens=1000, chunked_prefill_size=4096, max_prefill_tokens=16384, "
     f"max_running_requests=64, "
     "context_len=4096, available_gpu_mem=2.00 GB",
     {"layout.tp": (2, "built"), "layout.ranks_seen": ("tp1", "built"), "limits.max_running": (64, "resolved"),
      "limits.chunk_tokens": (4096, "resolved"), "limits.max_model_len": (4096, "resolved"),
      "kv.tokens": (1000, "built"),
      "memory.free_gib": (2.0, "built")}),
    ("a typed command", "$ python3 -m sglang.launch_server --model-path /m --tp 8 --dp-size 8 --enable-dp-attention "
     "--mem-fraction-static=0.8 --disable-radix-cache --kv-cache-dtype fp8_e4m3 --max-running-requests 64",
     {"layout.tp": (8, "asked"), "layout.attention_dp": (8, "asked"), "layout.dp": (1, "asked"),
      "limits.memory_share": (0.8, "asked"), "prefix_cache.enabled": (False, "asked"),
      "kv.dtype": ("fp8_e4m3", "asked"),
      "limits.max_running": (64, "asked")}),
    ("replicas", "sglang serve --model-path /m --tp-size 2 --dp-size 4",
     {"layout.tp": (2, "asked"), "layout.dp": (4, "asked")}),
    ("usage is no command", "usage: sglang serve [-h] --model-path MODEL_PATH [--tp-size TP_SIZE]", {}),
]

WRAPPED: list[tuple[str, str, Facts]] = [
    ("compose", f"sglang-1  | {T} TP1] Memory pool end. avail mem=11.08 GB",
     {"layout.ranks_seen": ("tp1", "built"), "memory.free_gib": (11.08, "built")}),
    ("brackets", f"[sglang]     | {T} TP1] Memory pool end. avail mem=11.08 GB",
     {"layout.ranks_seen": ("tp1", "built"), "memory.free_gib": (11.08, "built")}),
    ("slurm", f"0: {T} PP1 TP1 EP1] Memory pool end. avail mem=11.08 GB",
     {"layout.ranks_seen": ("pp1 tp1 ep1", "built"), "memory.free_gib": (11.08, "built")}),
    ("ray", f"(SGLangWorker pid=38138) {T} DP1 TP0] Memory pool end. avail mem=11.08 GB",
     {"layout.ranks_seen": ("dp1", "built"), "memory.free_gib": (11.08, "built")}),
    ("old clock", "[16:53:16 TP2] Memory pool end. avail mem=11.08 GB",
     {"layout.ranks_seen": ("tp2", "built"), "memory.free_gib": (11.08, "built")}),
    ("colours and a bar before the stamp",
     f"Capturing batches (bs=1 avail_mem=3.00 GB): 100%|####| 4/4 [00:01<00:00, 3.3it/s]\x1b[32m{T} ATTN_CP0 MOE_DP1 "
     f"TP3] "
     "Capture cuda graph end. Time elapsed: 5.0 s. mem usage=1.00 GB. avail mem=8.00 GB.\x1b[0m",
     {"layout.ranks_seen": ("tp3", "built"), "graphs.decode.mode": ("full", "built"),
      "graphs.decode.sizes_count": (4, "built"), "graphs.memory_gib": (1.0, "built"),
      "startup.graphs_s": (5.0, "built"),
      "memory.free_gib": (8.0, "built")}),
]


@pytest.mark.parametrize(("log", "facts"), [
    pytest.param(log, facts, id=name)
    for table in (CAPTURES, MEMORY, STEPS, KERNELS, LINKS, SETTINGS, WRAPPED) for name, log, facts in table])
def test_shape(log: str, facts: Facts) -> None:
    found = read(log)
    assert {fact: level for fact, (_, level) in found.items()} == {fact: level for fact, (_, level) in facts.items()}
    for fact, (value, _) in facts.items():
        assert same(fact, found[fact][0], value), (fact, found[fact])
