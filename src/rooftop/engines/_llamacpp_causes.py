"""Why llama-server fails or does less than asked: its words, the error kind they mean, and what to do."""

import re

from rooftop.engines._lines import Line

Cause = tuple[re.Pattern[str], str, str]


def _table(*rows: tuple[str, str, str]) -> tuple[Cause, ...]:
    return tuple((re.compile(words), kind, remedy) for words, kind, remedy in rows)


_CONFIG = "the file is no whole GGUF model, or of another make than this build reads: compare size and checksum, update"
_OFFLOAD = "the rest runs on the CPU: a smaller format, a shorter context, or more GPU memory"

# One row: words of the log, the kind of the closed list, what to do.  The first row that matches decides.
CAUSES = _table(
    (r"couldn't bind .*|bind.*[Aa]ddress already in use.*", "port_in_use",
     "another process holds the port: end it, or let rooftop choose a port"),
    (r"error: (?:invalid|unknown) argument: .*", "unknown_flag",
     "this llama-server does not know the flag: see `llama-server --help` for its name in this version"),
    (r"error while handling argument .*", "unknown", "the flag's value is not one that llama-server takes"),
    (r"the argument has been removed.*", "unknown_flag", "use the new name that the message gives"),
    (r"failed to open (?:GGUF file )?\S.*No such file or directory.*|failed to get model from Hugging Face.*|"
     r"common_download_\w+: .*status code (?:404|401|403).*", "model_not_found",
     "the path is wrong or the weights are not fetched: check `model`, or run `rooftop fetch`"),
    (r"failed to open GGUF file .*", "model_not_found", "the model file cannot be read: check its permissions"),
    (r"cannot start \S+: .*", "unknown", "the engine's program cannot be run: check `binary`"),
    (r"unknown model architecture: .*|unknown pre-tokenizer type.*", "model_config_invalid",
     "this llama.cpp is older than the model: update it"),
    (r"(?:invalid magic|bad GGUF magic|gguf_init_from_\w+: failed to read|tensor '.*' data is not within|"
     r"missing tensor|key not found in model|wrong number of tensors|has wrong shape|invalid split file).*",
     "model_config_invalid", _CONFIG),
    (r"failed to allocate buffer for kv cache.*|llama_kv_cache_init\(\) failed.*", "oom_kv",
     "shorter ctx-size, fewer parallel slots, a smaller cache-type-k/-v, or move layers by tensor-split"),
    (r"(?:unable to allocate \S+ buffer|alloc_tensor_range: failed to allocate \S+ buffer).*", "oom_weights",
     "the weights do not fit: a smaller format, more GPUs, or a lower n-gpu-layers"),
    (r"V cache quantization requires flash_attn.*|quantized V cache was requested, but.*", "unknown",
     "flash-attn = true, or cache-type-v = \"f16\""),
    (r".*SPLIT_MODE_TENSOR.*(?:not implemented|not supported).*", "layout_not_supported",
     "this model has no tensor split in llama.cpp: use pp (a layer split) or dp"),
    (r"no kernel image is available.*|.*has no device code compatible with CUDA arch.*|"
     r"ggml was not compiled with any CUDA arch.*|rocBLAS error: Cannot read .*TensileLibrary.*",
     "kernel_missing_for_gpu", "a build of llama.cpp for this GPU"),
    (r"CUDA driver version is insufficient.*|forward compatibility was attempted.*|unsupported display driver.*",
     "cuda_driver_mismatch", "a newer driver, or a build for this one"),
)
LATE_CAUSES = _table(
    (r"failed to allocate (?:compute|\S+) buffer.*", "oom_compute", "a lower batch-size and ubatch-size"),
    (r"(?:\w+ failed: out of memory|insufficient memory|CUDA error: out of memory|ROCm error: out of memory|"
     r"ErrorOutOfDeviceMemory|Device memory allocation of size \d+ failed).*", "oom_compute",
     "less context, slots or batch"),
    (r"NCCL (?:error|WARN .*(?:failed|error)).*|ncclSystemError.*|ncclUnhandledCudaError.*", "nccl_error",
     "look at the device named; test an all-reduce, NCCL_DEBUG=INFO tells more"),
    (r"Segmentation fault.*|SIGSEGV.*", "segfault", ""),
    (r"GGML_ASSERT\(.*|CUDA error: .*", "unknown", "a check inside llama.cpp failed: report it there, with this log"),
    (r"failed to load model.*", "unknown", "see the lines before it in the log"),
)
RETRIED = "retrying without pipeline parallelism"
DEGRADED = _table(
    (rf"{RETRIED}.*", "degraded_start",
     "it runs without pipeline parallelism: a lower ubatch-size makes its buffers fit"),
    (r".*exceeds the available context size.*|input is too large to process.*", "request_too_long",
     "the request is longer than its slot: shorten it, raise ctx-size or lower parallel"),
    (r"offloaded (\d+)/(?!\1 )\d+ layers to GPU", "partial_offload", _OFFLOAD),
    (r"tensor \S+ .*buffer type overrid\w+ to CPU", "partial_offload",
     "tensors were sent to the CPU by an override: " + _OFFLOAD.removeprefix("the rest runs on the CPU: ")),
    (r".*P2P is disabled between connected GPUs.*|.*NCCL INFO Channel \S+ : .* via SHM.*", "p2p_unavailable",
     "GPU traffic goes through host memory: check ACS and IOMMU, or compare with a layer split, which talks less"),
    (r".*NCCL.*(?:is unavailable|not available).*", "allreduce_fallback",
     "this build reduces without NCCL: a build with NCCL, or split-mode layer, which does not reduce"),
    (r"failed to find (?:free space in the KV cache|a memory slot|a KV slot).*|Context size has been exceeded.*",
     "kv_capacity_bound", "fewer parallel slots, a longer ctx-size, or a smaller cache-type-k/-v"),
    (r".*(?:no usable GPU found|not compiled with GPU offload support).*will be ignored.*", "flag_not_effective",
     "n-gpu-layers is not in force: a build for this GPU, or a driver that it finds"),
)
_HOST_KV = re.compile(r"(?:CPU|CUDA_Host|ROCm_Host|Vulkan_Host)\s+KV buffer size\s*=\s*[1-9][\d.]* MiB")
_GPU_BUFFER = re.compile(r"(?:CUDA|ROCm|Vulkan|SYCL|MTL)\d* (?:model )?buffer size|"
                         r"offloaded [1-9]\d*/\d+ layers to GPU")


def kv_on_host(lines: list[Line]) -> Line | None:
    """The line that puts KV memory on the host while a GPU holds weights; None for none."""
    if not any(_GPU_BUFFER.search(line.body) for line in lines):
        return None
    return next((line for line in lines if _HOST_KV.search(line.body)), None)
