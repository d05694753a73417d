"""Why vLLM fails or does less than asked: its words, the error kind they mean, and what to do (0.8 to 0.33)."""

import re

from rooftop.engines._findings import Cause


def _cause(kind: str, pattern: str, remedy: str) -> Cause:
    return Cause(kind, re.compile(pattern), remedy)


_CONTEXT = "set --max-model-len to at most {fits}, use --kv-cache-dtype fp8, or give KV more memory"
_PEER = ("free the device (list its processes) or set --gpu-memory-utilization below {share}: "
         "{free} of {total} GiB are free")
_BLOCK = "width {width} is no multiple of {block}: choose a smaller tp, or keep experts whole with ep"
_GPU_BUILD = "use a build or a format for this GPU, or another attention or quantization backend"
_FLAG = "remove or correct {flag}; `vllm serve --help=all` lists what this version knows"

# `oom` is no kind yet: the stage at which memory ran out decides.
CAUSES: tuple[Cause, ...] = (
    _cause("worker_died", r"killed due to the node running low on memory",
           "the host ran out of memory: fewer workers a node, or a smaller model"),
    _cause("no_memory_for_kv", r"No available memory for the cache blocks|Cannot auto-fit max_model_len: not enough|"
           r"Available KV cache memory: -\d",
           "raise --gpu-memory-utilization if others allow it, else more GPUs, a smaller weight format or fewer "
           "--max-num-batched-tokens"),
    _cause("kv_too_small_for_context",
           r"To serve at least one request.*max seq len \((?P<length>\d+)\)"
           r"(?:.*maximum model length is (?P<fits>\d+))?",
           _CONTEXT),
    _cause("kv_too_small_for_context",
           r"max seq len \((?P<length>\d+)\) is larger than the maximum number of tokens that can be stored in KV "
           r"cache \((?P<fits>\d+)\)", _CONTEXT),
    _cause("peer_process_holds_memory",
           r"(?:Free memory on device (?:\S+ )?|"
           r"Available memory on node \d+ )\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) "
           r"on startup is less than", _PEER),
    _cause("peer_process_holds_memory", r"Error in memory profiling\.",
           "another process changed its memory while vLLM measured: start again once the device is quiet"),
    _cause("oom_kv", r"on kv cache allocation is less than requested memory for kv \((?P<needed>[\d.]+) GiB\)",
           "lower --kv-cache-memory-bytes or VLLM_CPU_KVCACHE_SPACE below what is free ({needed} GiB were asked)"),
    _cause("no_memory_for_kv", r"on kv cache allocation is less than requested memory for kv \(-?[\d.]+/",
           "set VLLM_CPU_KVCACHE_SPACE, or free memory on this node"),
    _cause("oom_weights", r"Failed to load model - not enough GPU memory",
           "a smaller weight format, more GPUs (tp or pp), or --cpu-offload-gb"),
    _cause("oom_compute", r"CUDA out of memory occurred when warming up",
           "lower --max-num-seqs or --gpu-memory-utilization"),
    _cause("oom", r"OutOfMemoryError|[Oo]ut of memory\. Tried to allocate|CUDA error: out of memory|HIP out of memory|"
           r"can't allocate memory: you tried to allocate|OUT_OF_DEVICE_MEMORY|\bMemoryError\b|"
           r"Cannot allocate memory", ""),
    _cause("heads_not_divisible",
           r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<tp>\d+)\)",
           "tp must divide {heads} heads: choose {legal}, or use pp or dp"),
    _cause("heads_not_divisible",
           r"num_heads \(?(?P<heads>\d+)\)? is not divisible by tp_size (?P<tp>\d+)|"
           r"num_attention_heads must be divisible by world_size|assert self\.total_num_(?:kv_)?heads % tp_size == 0|"
           r"Tensor parallel world size must divide num heads",
           "choose a tp that divides the model's attention heads, or use pp or dp"),
    _cause("heads_not_divisible", r"AssertionError: (?P<width>\d+) is not divisible by (?P<tp>\d+)",
           "choose a tp that divides the model's heads and widths ({width} by {tp} does not), or use pp or dp"),
    _cause("fp8_block_not_divisible",
           r"= (?P<width>\d+) is not divisible by (?:weight quantization )?(?:block_[nk]|min_thread_[nk]|group_size|"
           r"tile_\w+|\w*block\w*) = (?P<block>\d+)", _BLOCK),
    _cause("fp8_block_not_divisible",
           r"per tensor-parallel partition \((?P<width>\d+)\) to be divisible by \w+ \((?P<block>\d+)\)|"
           r"size per partition \((?P<w>\d+)\) must be divisible by group size|"
           r"quantized weight shape\. This can be caused by too large tensor parallel size|"
           r"is not divisible by weight quantization block", "choose a smaller tp, or keep experts whole with ep"),
    _cause("layout_not_supported",
           r"[Pp]ipeline parallelism is (?:not|only) supported|does not support pipeline parallel|"
           r"PP is not supported for|"
           r"does not support (?:prefill|decode)? ?context parallelism|with tensor parallelism is not supported",
           "this model cannot run in this layout: use tp or dp instead"),
    _cause("layout_not_supported",
           r"(?:World size|Tensor parallel size) \((?P<world>\d+)\) (?:is larger than|"
           r"cannot be larger than) the number "
           r"of available GPUs \((?P<gpus>\d+)\)", "the layout needs {world} GPUs and {gpus} are here"),
    _cause("layout_not_supported",
           r"ensure that world_size \((?P<world>\d+)\) is less than (?:than )?max local gpu count \((?P<gpus>\d+)\)",
           "the layout needs {world} GPUs and {gpus} are here: over nodes, start it with "
           "--distributed-executor-backend ray"),
    _cause("layout_not_supported", r"number of required \w*GPUs exceeds|Cannot provide a placement group requiring",
           "the layout needs more GPUs than there are"),
    _cause("layout_not_supported",
           r"Not enough allowed NUMA nodes to bind threads of (?P<workers>\d+) local CPUWorkers",
           "bind by hand: VLLM_CPU_OMP_THREADS_BIND with {workers} groups of cores, separated by |"),
    _cause("layout_not_supported",
           r"Number of experts in the model must be greater than 0 when expert parallelism|"
           r"Error: .*(?:EPLB|Elastic EP|[Dd]ecode context parallel\w*|PCP|DCP|DBO)\b.* "
           r"(?:requires|is not supported|does not support|must be)|enable_expert_parallel must be True|"
           r"decode-context-parallel-size.*exceeds|"
           r"tp_size=?\d* must be divisible by dcp_size|All2All backend.*requires|must be divisible by ep_size|"
           r"local rank \d+ is out of bounds|invalid device ordinal",
           "change the layout to what the rule in the message allows"),
    _cause("kernel_missing_for_gpu",
           r"no kernel image is available for execution|for CUDA device capability: \d|"
           r"is not supported for the current GPU|only supported on GPUs with compute capability|"
           r"not supported by the \w+ (?:MLA |attention )?backend on|No valid (?:attention|NVFP4 GEMM) backend found|"
           r"No \w+(?: \w+)? MoE backends? (?:supports|available)|is not supported on compute capability|"
           r"Failed to find a kernel that can implement|device kernel image is invalid|"
           r"FlashAttention only supports|not supported in this architecture|"
           r"is not compatible with the current PyTorch|Value 'sm_\w+' is not defined|"
           r"requires GPU compute capability|Unsupported gpu architecture|No compiled \w+ for|"
           r"does not support (?:backend .* with capability \d|sm_?\d)|"
           r"(?:requires|is only supported on|only available on|only supports) .{0,40}"
           r"(?:SM ?(?:>=)?\d+|sm_?\d+|Hopper|Blackwell|Ampere)|"
           r"Selected backend .* is not valid", _GPU_BUILD),
    _cause("kernel_shared_memory",
           r"OutOfResources: out of resource: shared memory, Required: (?P<n>\d+), Hardware limit: (?P<limit>\d+)",
           "another attention or MoE backend: the kernel wants {n} bytes of shared memory and the GPU has {limit}"),
    _cause("cuda_driver_mismatch",
           r"NVIDIA driver on your system is too old|driver version is insufficient for CUDA runtime|"
           r"unsupported display driver / cuda driver|forward compatibility was attempted|unsupported toolchain|"
           r"undefined symbol: |[Vv]ersion mismatch: flashinfer|"
           r"lib(?:cuda|cudart|cudnn|cublas|nccl|nvrtc)\S*: cannot open shared object",
           "match driver, CUDA runtime and the vLLM build: update the driver or install the build for it"),
    _cause("model_not_found",
           r"is not a local folder and is not a valid model identifier|Repo id must be in the form|"
           r"RepositoryNotFoundError|"
           r"Can't load the configuration of|Invalid repository ID or local directory|"
           r"Cannot find any model weights with|trying to access a gated repo|"
           r"does not appear to have a file named|GatedRepoError|Cannot access gated repo|LocalEntryNotFoundError|"
           r"couldn't connect to 'https://huggingface|HFValidationError|401 Client Error|"
           r"No such file or directory: '?\S*(?:config\.json|\.safetensors|tokenizer|\.gguf)|"
           r"Failed to load the tokenizer|model path .* does not exist",
           "check the path or the name of the model, and access to it"),
    _cause("model_config_invalid",
           r"Model architectures? \[?.*(?:not supported|failed to be inspected|was supported in vLLM until)|"
           r"does not recognize this architecture|No supported config format found|"
           r"No model architectures are specified|"
           r"User-specified max_model_len \((?P<asked>\d+)\) is greater than the derived|"
           r"weights were not initialized from checkpoint|There is no module or parameter named|"
           r"does not match the quantization method specified|Unknown quantization method|"
           r"Cannot find the config file for|"
           r"Attempted to load weight|AttributeError: '\w*Config' object has no attribute|"
           r"Could not determine the number of key-value|rope_(?:scaling|parameters).*(?:must|should|missing)|"
           r"is not a registered model in the Transformers library|head_dim.*must be divisible",
           "the model's config.json does not suit this version: correct the field named, or use another version"),
    _cause("unknown_flag",
           r"error: unrecognized arguments?: (?P<flag>\S+)|error: argument (?P<bad>--?[\w./-]+): (?:invalid|"
           r"expected|not allowed|Value .* cannot be converted)|"
           r"got an unexpected keyword argument '(?P<name>\w+)'|error: the following arguments are required", _FLAG),
    _cause("flag_ambiguous", r"error: ambiguous option: (?P<flag>\S+) could match (?P<options>.*)",
           "write the whole name of {flag}: {options}"),
    _cause("port_in_use", r"[Aa]ddress already in use|EADDRINUSE",
           "another process listens there: stop it or choose a free --port"),
    _cause("shm_too_small",
           r"posix_fallocate failed|No space left on device.*(?:/dev/shm|shm)|(?:/dev/shm|"
           r"shared memory).*No space left|"
           r"[Uu]nable to (?:allocate|open) shared memory|insufficient shared memory|creating shared memory segment|"
           r"Bus error", "give the container a larger /dev/shm (--shm-size=8g or --ipc=host)"),
    _cause("nccl_error",
           r"NCCL error|ncclSystemError|ncclRemoteError|ncclInternalError|ncclUnhandledCudaError|DistBackendError|"
           r"Watchdog caught collective operation timeout|"
           r"NCCL watchdog thread terminated|NCCL operations have failed or timed out|DistStoreError|DistNetworkError|"
           r"NCCL WARN .*(?:failed|error)|unhandled system error",
           "look at the rank that stopped first; test an all-reduce, the network interface and NCCL_DEBUG=INFO"),
    _cause("hang_after_ready", r"TimeoutError: RPC call to (?:execute_model|sample_tokens) timed out",
           "a worker no longer answers: take stack dumps, suspect a collective that one rank left"),
    _cause("segfault", r"Segfault encountered|[Ss]egmentation fault|SIGSEGV|\(exit code: -11\)", ""),
    _cause("worker_died",
           r"(?P<who>\S+(?: proc \S+)?) died(?: unexpectedly)?(?:,? \(?exit code: (?P<code>-?\d+)\)?| unexpectedly)|"
           r"EngineDeadError|Engine core initialization failed|Engine (?:core|process) .*(?:failed|died)|"
           r"WorkerProc initialization failed|EngineCore encountered an issue|Engine loop is not running|"
           r"Connection (?:closed|reset) by peer|ActorDiedError|actor is dead|worker died",
           "look in the log of the process that ended first; if it was killed (signal 9), memory ran out on the host"),
    _cause("request_too_long",
           r"maximum context length is (?P<limit>\d+) tokens|(?:is|are) (?:too long and exceeds|"
           r"longer than the maximum "
           r"model length)", "the request is longer than the server holds: shorten it or raise --max-model-len"),
    _cause("p2p_unavailable", r"P2P is disabled between connected GPUs",
           "GPU traffic goes through host memory: check ACS and IOMMU, or compare with pp and dp, which talk less"),
    _cause("graphs_downgraded",
           r"CUDAGraphMode\.\w+ is not supported with (?:spec-decode for attention backend )?(?P<part>\w+)|"
           r"[Oo]verriding cudagraph_mode|Cudagraph mode \S+ (?:is not compatible|requires piecewise)|"
           r"Disabling CUDA Graphs since|CUDA graph is not supported .*fallback to",
           "decode runs without full graphs: try another attention backend, or judge small batches with that in mind"),
    _cause("allreduce_fallback",
           r"Custom allreduce is disabled (?:because (?!of missing)|due)|Custom collectives are disabled|"
           r"SymmMemCommunicator: .*not (?:supported|available)|Using \['?PYNCCL'?\] all-reduce(?=[^']*$|[^']*'tp)|"
           r"Setup [Cc]ustom allreduce failed",
           "all-reduce runs on NCCL: expect slow decode at high tp, compare smaller tp"),
    _cause("kernel_fallback",
           r"does not have native support for FP[48]|Performance might be sub-optimal|Emulation\w* MO?oE backend|"
           r"unoptimized (?:AWQ|emulation|and)|slow and unoptimized|Cannot use FlashAttention\S* backend|"
           r"quantization is not fully optimized|falling back to Transformers implementation|"
           r"Emulation\w* MOE backend", "a slower kernel stands in: name another backend or tune a table for this GPU"),
    _cause("kv_capacity_bound", r"is preempted by PreemptionMode|Preemptions: [1-9]",
           "requests are preempted and computed again: lower concurrency or lengths, or give KV more memory"),
    _cause("graph_ceiling_below_batch", r"Capping cudagraph capture sizes from max (?P<max>\d+) to (?P<to>\d+)",
           "graphs end at {to}: lower --max-num-seqs to it, or give the cache more memory"),
    _cause("partial_offload", r"Total CPU offloaded parameters: (?P<size>\S+)",
           "weights sit on the CPU ({size}): no GPU setting explains the speed until they fit"),
    _cause("layout_poor", r"Hidden layers were unevenly partitioned: \[(?P<parts>[^\]]*)\]",
           "stages hold {parts} layers: choose a pp that divides them, or set VLLM_PP_LAYER_PARTITION"),
    _cause("flag_not_effective",
           r"is not supported by the V1 Engine\. Falling back|Falling back to V0|Unknown vLLM environment variable "
           r"detected: (?P<name>\w+)|`?--[\w-]+`?.* (?:has no effect|will be ignored|is ignored)|"
           r"doesn't support KV cache quantization,? fallback|overriding user-specified|"
           r"--linear-backend=\S+ was requested, but", "the value is not in force: remove it or use what replaced it"),
)

# Within a traceback: (exception, frame or source line, kind, remedy).
TRACES: tuple[tuple[re.Pattern[str], re.Pattern[str], str, str], ...] = tuple(
    (re.compile(exception), re.compile(frame), kind, remedy) for exception, frame, kind, remedy in (
        (r"^AssertionError", r"assert self\.intermediate_tensors is not None", "layout_not_supported",
         "eager stages skip the warm-up that makes their buffer: drop --enforce-eager (on CPU add -cc.backend=eager)"),
        (r"^NotImplementedError", r"communicator\.py", "layout_not_supported",
         "this device has no such collective: experts over dp cannot run here, use tp or switch ep off"),
        (r"^KeyError", r"configuration_auto|CONFIG_MAPPING|config_class = ", "model_config_invalid",
         "this version does not know the model's type"),
        (r"^KeyError", r"load_weights|load_model", "model_config_invalid",
         "the weights and config.json name different tensors: a field of config.json is missing or wrong"),
        (r"^AttributeError: '\w*Config'", r"", "model_config_invalid",
         "config.json lacks the field named, or this version does not know the model"),
    ))

# Where memory ran out, by the functions in the traceback, the most telling first.
OOM_STAGES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(frames), kind, remedy) for frames, kind, remedy in (
        (r"capture_model|capture_graph|_capture_cudagraph|capture_begin|cuda_?graph_runner|torch\.cuda\.graph\(",
         "oom_graph_capture",
         "lower --gpu-memory-utilization a little or --max-cudagraph-capture-size; keep graphs on"),
        (r"allocate_kv_cache|initialize_kv_cache|initialize_from_config|_allocate_kv|initialize_cache",
         "oom_kv", "shorter --max-model-len, fewer --max-num-seqs, or a smaller KV format"),
        (r"profile_run|determine_available_memory|_dummy_run|execute_model|warming_up_model|profile_cudagraph|"
         r"_dummy_sampler",
         "oom_compute", "lower --max-num-batched-tokens or --max-num-seqs"),
        (r"load_model|load_weights|initialize_model|create_weights|process_weights_after_loading|weight_loader|repack|"
         r"get_model\b|make_layers|_init_model\b|model_class\(|maybe_offload_to_cpu",
         "oom_weights", "a smaller weight format, more GPUs (tp or pp), or --cpu-offload-gb"),
    ))
