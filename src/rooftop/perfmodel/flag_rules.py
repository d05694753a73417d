"""What machine and flags allow, where an engine cannot tell from the plan alone."""

from rooftop.perfmodel.case import Case, Reason


def files(case: Case) -> Reason:
    """llama.cpp reads GGUF files only; the others have no more than experiments with them."""
    name = case.architecture.name
    if case.engine == "llamacpp" and not case.gguf:
        return f"{name} is no GGUF file, and llama.cpp reads nothing else"
    if case.engine != "llamacpp" and case.gguf:
        return f"{name} is a GGUF file, and {case.engine} reads safetensors"
    return None


def gpus(case: Case) -> Reason:
    """As many GPUs as ranks; llama.cpp alone does without any."""
    machine = case.machine
    if machine is None or (case.engine == "llamacpp" and not machine.gpus and case.layout.tp * case.layout.pp == 1):
        return None
    if not machine.gpus:
        return f"{machine.name} has no GPUs"
    has = f"{machine.name} has {machine.world}"
    return f"{case.layout} needs {case.layout.ranks} GPUs, {has}" if case.layout.ranks > machine.world else None


def nodes(case: Case) -> Reason:
    """Stages and ranks fill nodes evenly; replicas of one server stay on one node."""
    count = case.machine.nodes if case.machine else 1
    one = case.layout.tp * case.layout.pp
    if count > 1 and case.layout.dp > 1:
        return f"dp {case.layout.dp} on {count} nodes"
    return f"tp x pp = {one} on {count} nodes" if one % count else None


def kernels(case: Case) -> Reason:
    """Kernels of experts that ask something of the GPU or of the weights' format."""
    backend, runner = case.says("moe-a2a-backend"), case.says("moe-runner-backend")
    sm = case.machine.gpus[0].sm if case.machine and case.machine.gpus else ""
    if "megamoe" in backend and sm and not sm.startswith("10."):
        return f"--moe-a2a-backend {backend} has kernels for SM100 only, this is SM{sm.replace('.', '')}"
    fp8 = any(matrix.part == "experts" and "fp8" in matrix.format.name for matrix in case.architecture.matrices)
    if runner == "cutlass" and fp8 and case.layout.ep > 1:
        return f"--moe-runner-backend cutlass on fp8 experts takes ep 1, not ep {case.layout.ep}"
    return None


def redundant(case: Case) -> Reason:
    """vLLM keeps more copies of experts only to balance them."""
    count = case.whole("num-redundant-experts")
    if count and case.says("enable-eplb") != "true":
        return f"{count} redundant experts without --enable-eplb"
    return None


def elastic(case: Case) -> Reason:
    """Elastic expert parallelism and external load balancing."""
    if case.says("enable-elastic-ep") == "true" and (case.says("enable-eplb") != "true" or case.layout.pp > 1):
        return "--enable-elastic-ep needs --enable-eplb and pp 1"
    if case.says("data-parallel-external-lb") == "true" and case.layout.dp == 1:
        return "--data-parallel-external-lb with dp 1"
    return None
