"""What an engine's flags and degrees allow together, whatever the model."""

from rooftop.perfmodel.case import Case, Reason


def gpus(case: Case) -> Reason:
    """As many GPUs as ranks; llama.cpp alone does without any."""
    machine = case.machine
    if machine is None or (case.engine == "llamacpp" and not machine.gpus and case.layout.tp * case.layout.pp == 1):
        return None
    if not machine.gpus:
        return f"{machine.name} has no GPUs"
    has = f"{machine.name} has {machine.world}"
    return f"{case.layout} needs {case.layout.ranks} GPUs, {has}" if case.layout.ranks > machine.world else None


def one_kind(case: Case) -> Reason:
    """Ranks of one tp group hold as much and wait for each other."""
    kinds = {gpu.kind or gpu.name for gpu in case.machine.gpus} if case.machine else set()
    tp = case.layout.tp
    return f"tp {tp} over {' and '.join(sorted(kinds))}: all ranks must hold as much" if len(kinds) > 1 < tp else None


def nodes(case: Case) -> Reason:
    """Stages and ranks fill nodes evenly; replicas of one server stay on one node."""
    nodes = case.machine.nodes if case.machine else 1
    one = case.layout.tp * case.layout.pp
    if nodes > 1 and case.layout.dp > 1:
        return f"dp {case.layout.dp} on {nodes} nodes: replicas of one server stay on one node"
    return f"tp x pp = {one} on {nodes} nodes" if one % nodes else None


def groups(case: Case) -> Reason:
    """Replicas of a server, or of attention inside tp."""
    layout = case.layout
    if layout.dp > 1 and layout.attention_dp > 1:
        return f"dp {layout.dp} and attention-dp {layout.attention_dp} are two"
    return None


def dcp(case: Case) -> Reason:
    """Context parallel ranks group the ranks of attention."""
    attention = case.layout.tp // case.layout.attention_dp
    return (f"dcp {case.layout.dcp} in attention groups of {attention} ranks" if attention % case.layout.dcp else None)


def pp_speculation(case: Case) -> Reason:
    """Speculation and pipeline stages."""
    method = case.says("speculative-algorithm")
    return f"pp {case.layout.pp} with --speculative-algorithm {method}" if method and case.layout.pp > 1 else None


def pp_alone(case: Case) -> Reason:
    """Features that know one stage only."""
    for flag in ("enable-pdmux", "elastic-ep-backend", "enable-elastic-ep", "min-free-slots-delay", "enable-dwdp"):
        if case.layout.pp > 1 and case.says(flag) not in ("", "false"):
            return f"--{flag} with pp {case.layout.pp}"
    return None


def ep_in_tp(case: Case) -> Reason:
    """Experts are spread over the ranks of one tp group."""
    layout = case.layout
    return f"ep {layout.ep} does not divide tp {layout.tp}" if layout.tp % layout.ep else None


def ep_all(case: Case) -> Reason:
    """vLLM has no size of expert parallelism, only a switch."""
    layout = case.layout
    if layout.ep in (1, layout.tp * layout.dp):
        return None
    return f"ep {layout.ep} of tp {layout.tp} x dp {layout.dp}: it is {layout.tp * layout.dp} or 1"


def all_to_all(case: Case) -> Reason:
    """What each all-to-all backend demands of ep, attention-dp and the GPU."""
    backend, layout = case.says("moe-a2a-backend") or "none", case.layout
    if backend in ("none", "ascend_tp"):
        return None
    if layout.ep != layout.tp:
        return f"--moe-a2a-backend {backend} sets ep to tp {layout.tp}, ep {layout.ep} was asked"
    if backend in ("flashinfer", "flashinfer_megamoe") and layout.attention_dp != layout.tp:
        return f"--moe-a2a-backend {backend} needs attention-dp {layout.tp}, not {layout.attention_dp}"
    if backend == "pplx" and layout.attention_dp < 2:
        return "--moe-a2a-backend pplx needs attention-dp 2 or more"
    if backend == "pplx" and case.says("moe-runner-backend") not in ("", "auto", "deep_gemm"):
        return f"--moe-a2a-backend pplx needs --moe-runner-backend deep_gemm, not {case.says('moe-runner-backend')}"
    sm = case.machine.gpus[0].sm if case.machine and case.machine.gpus else ""
    if "megamoe" in backend and sm and not sm.startswith("10."):
        return f"--moe-a2a-backend {backend} has kernels for SM100 only, this is SM{sm.replace('.', '')}"
    return None


def moe_runner(case: Case) -> Reason:
    """What the experts' kernels demand of ep."""
    runner, layout = case.says("moe-runner-backend"), case.layout
    if runner in ("flashinfer_cutlass", "flashinfer_cutedsl") and layout.ep not in (1, layout.tp):
        return f"--moe-runner-backend {runner} takes ep 1 or ep {layout.tp}, not ep {layout.ep}"
    if runner == "cutlass" and layout.ep > 1 and any(m.part == "experts" and "fp8" in m.format.name
                                                     for m in case.architecture.matrices):
        return f"--moe-runner-backend cutlass on fp8 experts takes ep 1, not ep {layout.ep}"
    return None


def switches(case: Case) -> Reason:
    """Flags that mean something only beside another."""
    layout, dense = case.layout, case.settings.get("moe-dense-tp-size")
    if dense not in (None, 1, layout.tp):
        return f"--moe-dense-tp-size {dense}: it is 1 or tp {layout.tp}"
    if case.says("enable-dp-lm-head") == "true" and layout.attention_dp == 1:
        return "--enable-dp-lm-head without attention-dp"
    apart = case.says("moe-a2a-backend") not in ("", "none")
    if case.says("enable-two-batch-overlap") == "true" and not apart and layout.attention_dp == 1:
        return "--enable-two-batch-overlap needs an a2a backend or attention-dp"
    chunk, page = case.whole("chunked-prefill-size"), case.whole("page-size", 1)
    if chunk > 0 and page > 0 and chunk % page:
        return f"--chunked-prefill-size {chunk} is no multiple of --page-size {page}"
    return None


def balancing(case: Case) -> Reason:
    """Expert load balancing."""
    on, redundant = case.says("enable-eplb") == "true", case.whole("ep-num-redundant-experts")
    if on and case.layout.ep == 1:
        return "--enable-eplb with ep 1: there is nothing to balance"
    if case.engine == "vllm" and redundant and not on:
        return f"{redundant} redundant experts without --enable-eplb"
    return None


def elastic(case: Case) -> Reason:
    """Elastic expert parallelism and external load balancing."""
    if case.says("enable-elastic-ep") == "true" and (case.says("enable-eplb") != "true" or case.layout.pp > 1):
        return "--enable-elastic-ep needs --enable-eplb and pp 1"
    if case.says("data-parallel-external-lb") == "true" and case.layout.dp == 1:
        return "--data-parallel-external-lb with dp 1"
    return None


def files(case: Case) -> Reason:
    """llama.cpp reads GGUF files only; the others have no more than experiments with them."""
    name = case.architecture.name
    if case.engine == "llamacpp" and not case.gguf:
        return f"{name} is no GGUF file, and llama.cpp reads nothing else"
    if case.engine != "llamacpp" and case.gguf:
        return f"{name} is a GGUF file, and {case.engine} reads safetensors"
    return None
