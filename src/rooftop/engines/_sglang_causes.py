"""Why SGLang fails or does less than asked: its words, the error kind they mean, and what to do (0.4 to 0.5.23)."""

import re

from rooftop.engines._findings import Cause


def _causes(*rows: tuple[str, str, str]) -> tuple[Cause, ...]:
    return tuple(Cause(kind, re.compile(pattern), remedy) for kind, pattern, remedy in rows)


_SHARD = "width {width} is no multiple of {block}: a smaller tp, or keep experts whole with ep, or attention-dp"
_SHARE = "raise --mem-fraction-static if others allow it; else smaller weights or more GPUs"
_LAYOUT = "the rule in the message refuses this layout: choose the nearest that it allows"

# The first that matches a line counts.  `oom` and `segfault` are no kinds yet: stage and moment decide.
CAUSES: tuple[Cause, ...] = _causes(
    # arguments
    ("flag_ambiguous", r"error: ambiguous option: (?P<flag>\S+) could match (?P<options>.*)",
     "write one of them in full: {options}"),
    ("unknown_flag", r"error: unrecognized arguments?: (?P<flag>\S+)|error: argument (?P<bad>--?[\w./-]+)[^:]*: "
     r"(?:invalid|expected)|error: the following arguments are required|"
     r"got an unexpected keyword argument '(?P<name>\w+)'",
     "remove or correct {flag}; the engine's --help lists what this version knows"),
    ("unknown_flag", r"\.py: error: .*(?:is no longer supported|has been removed|use .* instead)",
     "use what the message names instead"),
    # memory
    ("no_memory_for_kv", r"Loaded weights leave no GPU memory.*above (?P<share>\d?\.\d+)",
     "raise --mem-fraction-static above {share} if others allow it; else smaller weights or more GPUs"),
    ("no_memory_for_kv", r"Loaded weights leave no GPU memory|Not enough memory\. Please try to increase "
     r"--mem-fraction-static|"
     r"Not enough GPU memory for hybrid|state cache is too small to serve any requests|Memory pool size is too small",
     _SHARE),
    ("no_memory_for_kv", r"is larger than the profiled value -\d|max_total_num_tokens=-\d",
     "weights leave nothing for KV: smaller weights, or spread them over more GPUs; no KV flag repairs this"),
    ("kv_too_small_for_context",
     r"KV pool holds (?P<fits>\d+) tokens, fewer than (?:--)?context-length (?P<length>\d+)",
     "lower --context-length to {fits}, use --kv-cache-dtype fp8_e4m3, or give KV more memory"),
    ("peer_process_holds_memory", r"memory capacity is unbalanced",
     "another process holds memory of one of the GPUs: list its processes and free it"),
    ("oom", r"CUDA out of memory|HIP out of memory|OutOfMemoryError|[Oo]ut of memory\. Tried to allocate|"
     r"CUDA error: out of memory|can't allocate memory: you tried to allocate|OUT_OF_DEVICE_MEMORY|\bMemoryError\b|"
     r"Cannot allocate memory|cudaErrorMemoryAllocation|NPU out of memory", ""),
    ("oom_compute", r"Failed to allocate memory for \w+ with size (?P<n>\d+).* in AlignedAllocator",
     "FlashInfer's workspace ({n} bytes wanted) is too small for the batch: lower --chunked-prefill-size or "
     "--max-running-requests, raise SGLANG_FLASHINFER_WORKSPACE_SIZE, or another --attention-backend"),
    ("kv_capacity_bound",
     r"No space left for only one request|[Oo]ut of (?:memory|request slots)\. ?(?:Try to lower|$)|"
     r"alloc_req_slots runs out of memory|"
     r"Out of memory even after retracting|Failed to retract any request|aborted last request .* due to OOM",
     "a batch found no KV slots: lower --max-running-requests, or give KV more memory"),
    ("kv_capacity_bound", r"KV cache pool is full\. Retract requests|Decode out of memory happened\. #retracted_reqs",
     "requests are retracted and computed again: lower concurrency or lengths, fp8 KV, or more KV memory"),
    # shape of the model against the layout
    ("fp8_block_not_divisible",
     r"= (?P<width>\d+) is not divisible by (?:weight quantization )?(?:block_[nk]|min_thread_[nk]|group_size|"
     r"min_[nk]_threads|pack_factor|\w*block\w*) ?=? ?(?P<block>\d+)?", _SHARD),
    ("fp8_block_not_divisible",
     r"is not divisible by weight quantization block|quantized weight shape\. This can be caused by too large tensor|"
     r"% weight_block_size_n|must be divisible by mxfp4_block|moe_intermediate_size \d+ must be divisible by moe_tp",
     "a smaller tp, or keep experts whole with ep"),
    ("heads_not_divisible",
     r"num_heads \((?P<heads>\d+)\) must be divisible by (?:attn_)?tp_size \((?P<tp>\d+)\)|"
     r"AssertionError: (?P<width>\d+) is not divisible by (?P<by>\d+)",
     "choose a tp that divides the heads ({heads} by {tp} does not go), or attention-dp, pp or dp"),
    ("heads_not_divisible",
     r"num_attention_heads must be divisible by|total_num_(?:kv_)?heads divisible by tp_size|"
     r"attention heads \d+ not divisible by TP",
     "choose a tp that divides the model's attention heads, or attention-dp, pp or dp"),
    ("layout_not_supported",
     r"SGLANG_CPU_OMP_THREADS_BIND is not set.*= (?P<ranks>\d+)\) should be smaller",
     "bind by hand: SGLANG_CPU_OMP_THREADS_BIND with {ranks} groups of cores, separated by |"),
    ("layout_not_supported",
     r"tp_size must be divisible by|tp_size \d+ must be divisible by (?:moe_)?ep_size|"
     r"expert parallel size must be 1 or|tp_size should be divisible by|"
     r"[Pp]ipeline [Pp]arallel\w* is (?:not|only|currently incompatible)|PP is not supported|"
     r"[Pp]ipeline parallel(?:ism)? is not compatible|pp_size == 1|ep_size \* moe_dp_size must be equal|"
     r"multi-node data-parallel replicas are not supported|dp_size.*must be|only supported with pipeline parallelism|"
     r"does not support (?:pipeline|expert|tensor|data) parallel|invalid device ordinal|"
     r"Expert [Pp]arallel\w* is not supported|\(num_physical_experts\) % |moe_dense_tp_size only supports",
     _LAYOUT),
    # kernels, driver
    ("kernel_shared_memory",
     r"OutOfResources: out of resource: shared memory, Required: (?P<n>\d+), Hardware limit: (?P<limit>\d+)",
     "another attention, MoE or GEMM backend, or a tuned table for this GPU: {n} bytes of shared memory are wanted "
     "and the GPU has {limit}"),
    ("kernel_missing_for_gpu",
     r"no kernel image is available|CUDA device capability: ?\d|is not supported for the current GPU|"
     r"is not compatible with the current PyTorch|device kernel image is invalid|Unsupported gpu architecture|"
     r"Value 'sm_\w+' is not defined|ptxas.*--gpu-name=sm_\w+.*non-zero|PTX codegen error|PTXASError|"
     r"(?:requires|only supports?|is only supported on|only available on) .{0,40}"
     r"(?:SM ?(?:>=)?\d+|sm_?\d+|Hopper|Blackwell|Ampere|compute capability)|Current platform does not support NVFP4|"
     r"not supported in this architecture|sgl_kernel.*(?:sm\d+|architecture).*not|"
     r"Could not load any common_ops library|No supported CUDA architectures|FlashAttention only supports|"
     r"Unsupported archi(?!tectures)|Assertion error \(\S*(?:arch|sm)\S*\)|FATAL: kernel `\w+` is for sm",
     "use a build or a format for this GPU, or another backend (--attention-backend, --moe-runner-backend, "
     "--fp8-gemm-backend)"),
    ("cuda_driver_mismatch",
     r"NVIDIA driver on your system is too old|driver version is insufficient|unsupported display driver|"
     r"forward compatibility was attempted|unsupported toolchain|undefined symbol: |"
     r"lib(?:cudart|cublas|nccl|nvrtc|cuda|numa)\S*: cannot open shared object|version mismatch.*(?:CUDA|cuda|NCCL)|"
     r"Please (?:upgrade|update) (?:the )?sgl-kernel|sgl-kernel is installed with version .* less than|"
     r"flashinfer.* is installed with version",
     "match driver, CUDA, sgl-kernel, flashinfer and SGLang: install the versions that belong together"),
    # model
    ("model_not_found",
     r"is not a local folder and is not a valid model identifier|Repo id must be in the form|RepositoryNotFoundError|"
     r"Can't load the configuration of|Cannot find any model weights with|trying to access a gated repo|"
     r"does not appear to have a file named|"
     r"GatedRepoError|Cannot access gated repo|LocalEntryNotFoundError|couldn't connect to 'https://huggingface|"
     r"HFValidationError|401 Client Error|404 Client Error|Failed to load the tokenizer|"
     r"No such file or directory: '?\S*(?:config\.json|\.safetensors|tokenizer|\.gguf|/models?/)|"
     r"model path .* does not exist|Unrecognized model in ",
     "check the path or the name of the model, and access to it"),
    ("model_config_invalid",
     r"Model architectures? .*(?:not supported|are not supported)|"
     r"Unsupported architectures:|does not recognize this architecture|"
     r"has no SGLang implementation and the Transformers|User-specified context_length \((?P<asked>\d+)\) is greater|"
     r"Unknown quantization method|Invalid quantization method|Cannot find the config file for|Cannot find any of \[|"
     r"does not match the quantization method specified|AttributeError: '\w*Config' object has no attribute|"
     r"Unsupported quantization config|Invalid quant_config|is not supported for quantization method|"
     r"rope_(?:scaling|parameters).*(?:must|should|missing)|Cannot find 'quant_algo'|head_dim.*must be divisible",
     "the model's config.json does not suit this version: correct the field named, or use another version"),
    # host
    ("port_in_use",
     r"[Aa]ddress already in use|EADDRINUSE|Port is already in use|port \d+ (?:is already|at .* is not av)",
     "another process listens there: stop it or choose a free --port"),
    ("shm_too_small",
     r"posix_fallocate failed|(?:/dev/shm|shm).*No space left|No space left on device.*(?:shm|/dev/shm)|"
     r"[Uu]nable to (?:allocate|open) shared memory|insufficient shared memory|"
     r"creating shared memory segment|Bus error",
     "give the container a larger /dev/shm (--shm-size=32g or --ipc=host)"),
    ("worker_died", r"Capture (?:prefill )?(?:cuda|CUDA) graph failed: .*(?:Connection (?:closed|reset) by peer|gloo)",
     "another rank ended first: look in its log, not at the capture"),
    ("nccl_error",
     r"NCCL error|ncclSystemError|ncclRemoteError|ncclInternalError|ncclUnhandledCudaError|ncclInvalidUsage|"
     r"DistBackendError|DistStoreError|DistNetworkError|unhandled (?:system|cuda) error|"
     r"Watchdog caught collective operation timeout|detected by watchdog at work|Timeout at NCCL work|"
     r"NCCL operations have failed or timed out|NCCL watchdog thread terminated|NCCL WARN .*(?:failed|error)",
     "look at the rank that stopped first; test an all-reduce, the network interface and NCCL_DEBUG=INFO"),
    ("segfault",
     r"Segfault encountered|[Ss]egmentation fault|SIGSEGV|exit(?:ed with)? code -11|terminated with -11", ""),
    ("hang_after_ready",
     r"Watchdog timeout \(|Health check failed\. Server couldn't get a response|Scheduler watchdog timeout",
     "a step never ended: take stack dumps (py-spy) of the schedulers; look for the rank that left a collective"),
    ("worker_died", r"Memory access fault by GPU node-\d+|SIGABRT|exit(?:ed with)? code:? -6\b|Aborted \(core dumped\)",
     "a kernel stopped its process: another attention or MoE backend, or another build; AMD_SERIALIZE_KERNEL=3 or "
     "CUDA_LAUNCH_BLOCKING=1 names the kernel"),
    ("worker_died",
     r"Received sigquit from a child proc|Child process unexpectedly failed with (?:an )?exit ?code|"
     r"SIGQUIT received|scheduler is dead|child failed|"
     r"(?:Scheduler or DataParallelController|Subprocess) \S+ (?:\S+ )?(?:terminated|crashed|died)(?: with)? ?"
     r"(?:\(?exit code |with )?(?P<code>-?\d+)?|Connection (?:closed|reset) by peer|"
     r"[Ee]xit(?:ed with)? code:? (?P<signal>-9)|could finish the model loading, but there are other ranks|"
     r"successfully reached monitoredBarrier, but received errors|Server process terminated unexpectedly|"
     r"Rank \d+ scheduler (?:is dead|died)(?:.*exit code: (?P<rank>-?\d+))?",
     "look in the log of the process that ended first; if it was killed (signal 9), memory ran out on the host"),
    # it runs, with less
    ("request_too_long",
     r"exceeds the maximum allowed length \((?P<limit>\d+) tokens|longer than the model's context length|"
     r"exceeds the model's (?:maximum )?context length|longer than the KV cache pool size or the max context",
     "the request is longer than the server holds: shorten it, or give KV more memory if the pool is the limit"),
    ("p2p_unavailable", r"peer access is not supported between these two devices",
     "start with --disable-custom-all-reduce and NCCL_P2P_DISABLE=1, or make peer access work (driver, ACS, IOMMU)"),
    ("p2p_unavailable", r"P2P is disabled between connected GPUs|lacks GPU P2P capability or P2P test failed(?=.*NCCL)",
     "GPU traffic goes through host memory: check ACS and IOMMU, or compare with pp and dp, which talk less"),
    ("graphs_downgraded",
     r"(?:Breakable|Full prefill) CUDA graph is incompatible with (?P<part>.+?);|"
     r"Disabling (?:\w+ )?prefill CUDA graph|"
     r"Cuda graph is disabled (?:because|for)|and cuda graphs are disabled because|Disabling breakable|"
     r"Disable (?:piecewise|prefill) CUDA graph (?:capture )?(?:because|for|due to) "
     r"(?!cuda_graph_config resolved|--disable|disable_)|Piecewise cuda graph is disabled for|"
     r"Disable DFLASH draft cuda graph",
     "a graph kind was given up for the part named: choose another backend, or judge the speed with that in mind"),
    ("allreduce_fallback",
     r"(?:Custom allreduce|CustomAll[Rr]educe\w*) is disabled (?:because|due)|Setup Custom allreduce failed|"
     r"SymmMemCommunicator: .*not (?:supported|available)|Failed to initialize FlashInfer workspace|"
     r"Skipping allreduce fusion",
     "all-reduce runs on NCCL: expect slow decode at high tp; compare smaller tp, pp or dp, on PCIe "
     "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1"),
    ("kernel_fallback",
     r"Performance might be sub-?optimal|does not have native support for FP[48]|unoptimized AWQ|"
     r"to slow implementation|"
     r"quantization is not fully optimized|falling back to Transformers implementation|Falling back to Moe WNA16|"
     r"will fallback to torch_native|Falling back to greedy verification|"
     r"NVCC Compiler not found, use NVRTC",
     "a slower kernel stands in: name another backend or tune a table for this GPU"),
    ("flag_not_effective",
     r"is larger than the profiled value \d|was reduced from the requested|is capped to \d+ by the|"
     r"has no effect without|will be ignored|is ignored (?:for|because)|is reset to \d+ for speculative|"
     r"Overriding (?!draft attention|the draft|Glm|Deepseek)[\w.' ]*(?:attention|moe|backend)|"
     r"is overridden to|adjusted to (?:1 when|speculative)|forcing (?:awq|gptq)\b|Setting attention backend to",
     "the value is not in force: set what the message names, or remove it"),
)

# Lines that look like trouble in every start and are none.
HARMLESS = re.compile(
    r"Ignore import error|UserWarning(?!.*NVIDIA driver on your system)|FutureWarning|DeprecationWarning|"
    r"is deprecated|Falling back to UnquantizedLinearMethod|"
    r"Fail to set RLIMIT|server_args ?=|launch_server:|leaked instance|TTS is disabled")

# Within a traceback: (exception, frame or source line, kind, remedy).
TRACES: tuple[tuple[re.Pattern[str], re.Pattern[str], str, str], ...] = tuple(
    (re.compile(exception), re.compile(frame), kind, remedy) for exception, frame, kind, remedy in (
        (r"AttributeError: 'PPMissingLayer'", r"", "layout_not_supported",
         "this model or device has no pipeline in this version: use tp or dp"),
        (r"^AssertionError", r"total_num_(?:kv_)?heads|num_heads % |numerator % denominator|in divide\b",
         "heads_not_divisible",
         "choose a tp that divides the model's attention heads, or attention-dp, pp or dp"),
        (r"^AssertionError", r"num_(?:local_|physical_)?experts % |attn_dp_size == 0|tp_size % ",
         "layout_not_supported", _LAYOUT),
        (r"^KeyError", r"configuration_auto|CONFIG_MAPPING|config_class = ", "model_config_invalid",
         "this version does not know the model's type"),
        (r"^(?:KeyError|AttributeError)", r"load_weights|weight_loader|params_dict\[", "model_config_invalid",
         "the weights and config.json name different tensors: this version may not know the checkpoint"),
        (r"^AttributeError: '\w*Config'", r"", "model_config_invalid",
         "config.json lacks the field named, or this version does not know the model"),
        (r"^(?:ImportError|ModuleNotFoundError)", r"", "cuda_driver_mismatch",
         "a package that this version needs is missing or does not fit: install the versions that belong together"),
    ))

# Where memory ran out, by the functions and words around it, the most telling first.
OOM_STAGES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(frames), kind, remedy) for frames, kind, remedy in (
        (r"Capture (?:\w+ )?(?:cuda|CUDA) graph failed|init_cuda_graphs|init_device_graphs|cuda_graph_runner|"
         r"capture_one_batch|init_piecewise_cuda_graph|_cuda_graph_setup|torch\.cuda\.graph\(|capture_prepare",
         "oom_graph_capture",
         "lower --mem-fraction-static a little, or capture fewer sizes (--cuda-graph-max-bs-decode; before 0.5.14 "
         "--cuda-graph-max-bs); keep graphs on"),
        (r"init_memory_pool|_create_buffers|memory_pool\.py|KVPool\(|kv_cache_configurator|kv_buffer",
         "oom_kv", "lower --mem-fraction-static or --max-total-tokens, or a smaller --kv-cache-dtype"),
        (r"event_loop|run_batch|forward_batch|forward_extend|forward_decode|_dummy_run|autotune|model_runner\.forward",
         "oom_compute", "lower --chunked-prefill-size, --max-running-requests or --mem-fraction-static"),
        (r"load_model|load_weights|initialize_model|create_weights|process_weights_after_loading|weight_loader|repack|"
         r"get_model\b",
         "oom_weights", "a smaller weight format, more GPUs (tp or pp), or --cpu-offload-gb"),
    ))
