"""Settings that would move a plan's speed on its machine, with the predicted gain."""

from collections.abc import Iterator
from dataclasses import replace

from rooftop.domain.architecture import Architecture
from rooftop.domain.finding import Finding
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.stepcost import Ledger
from rooftop.perfmodel.collectives import FAST
from rooftop.perfmodel.graphs import LARGEST, LISTS, padded
from rooftop.perfmodel.queueing import interval_s
from rooftop.perfmodel.roofline import Roofline, roofline

DIRECT = {"sglang": "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "vllm": "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"}
CAP = "pp-max-micro-batch-size"
LEAST = 0.03
"""Gains below are not told: they lie far inside the model's own errors."""
Change = tuple[str, str, Plan]


def gains(plan: Plan, architecture: Architecture, ledger: Ledger, users: int, context: float) -> tuple[Finding, ...]:
    """What each setting alone would bring one user and `users`, largest first."""
    model = roofline(plan, architecture, ledger)
    before = _rates(model, users, context)
    found = []
    for claim, remedy, changed in (*_changes(plan), *_captures(plan, model, users)):
        after = _rates(roofline(changed, architecture, ledger), users, context)
        found.append(_finding(claim, remedy, before, after, users))
    for claim, remedy, uncapped in _caps(plan, model, users, context):
        found.append(_finding(claim, remedy, (before[0], uncapped), before, users))
    told = [(share, finding) for share, finding in found if share >= LEAST]
    return tuple(finding for _, finding in sorted(told, key=lambda pair: -pair[0]))


def _rates(model: Roofline, users: int, context: float) -> tuple[float, float]:
    return 1 / interval_s(model, 1, context)[0], users / interval_s(model, users, context)[0]


def _finding(claim: str, remedy: str, before: tuple[float, float], after: tuple[float, float], users: int
             ) -> tuple[float, Finding]:
    shares = [new / old - 1 for new, old in zip(after, before, strict=True)]
    gain = f"{shares[0]:+.0%} for one user, {shares[1]:+.0%} for {users} (predicted)"
    evidence = (f"one user: {before[0]:.0f} to {after[0]:.0f} tok/s",
                f"{users} users decoding: {before[1]:.0f} to {after[1]:.0f} tok/s")
    return max(shares), Finding("speed setting", claim, evidence, remedy, gain)


def _changes(plan: Plan) -> Iterator[Change]:
    """(claim, remedy, the changed plan) of each setting that applies."""
    engine, layout, machine = plan.engine or "", plan.layout, plan.machine
    link = machine.slowest(range(layout.tp)) if machine and layout and layout.tp <= machine.world else None
    wired = link is not None and link.kind not in FAST and link.p2p is not False
    if engine in DIRECT and layout and layout.tp in (2, 4, 8) and wired:
        name = DIRECT[engine]
        yield ("all-reduces go through NCCL over PCIe; the opt-in kernel reads its peers directly (needs P2P)",
               f"set {name}=1", replace(plan, environment=(*plan.environment, Setting(name, "1"))))
    if plan.setting("kv-cache-dtype") is None and engine in DIRECT:
        value = "fp8_e4m3"
        yield ("the cache is kept in 16 bits", f"--kv-cache-dtype {value} (changes the model's output slightly)",
               replace(plan, settings=(*plan.settings, Setting("kv-cache-dtype", value))))
    for name in ("enforce-eager", "disable-cuda-graph"):
        if plan.setting(name):
            yield ("decoding runs without graphs, every kernel launched by the host", f"leave out --{name}",
                   replace(plan, settings=tuple(one for one in plan.settings if one.name != name)))


def _captures(plan: Plan, model: Roofline, users: int) -> Iterator[Change]:
    """Graphs for the batch that the users make: one that is larger than all, or falls between two sizes."""
    engine, layout = plan.engine or "", model.layout
    batch = -(-users // (layout.dp * layout.attention_dp * min(layout.pp, users)))
    if engine not in LARGEST or not model.sizes or batch in model.sizes:
        return
    others = tuple(one for one in plan.settings if one.name not in (*LISTS[engine], *LARGEST[engine]))
    if batch > model.sizes[-1]:
        yield (f"{batch} requests decode together and the largest captured batch is {model.sizes[-1]}: the host "
               "launches every kernel",
               f"--{LARGEST[engine][0]} {batch} (more graphs take memory and time at the start)",
               replace(plan, settings=(*others, Setting(LARGEST[engine][0], batch))))
    else:
        sizes = " ".join(map(str, sorted({*model.sizes, batch})))
        yield (f"{batch} requests that decode together run as {padded(batch, model.sizes)}, the next captured batch",
               f"add {batch} to --{LISTS[engine][0]}",
               replace(plan, settings=(*others, Setting(LISTS[engine][0], sizes))))


def _caps(plan: Plan, model: Roofline, users: int, context: float) -> Iterator[tuple[str, str, float]]:
    """(claim, remedy, tokens/s without it) of SGLang's cap on micro-batches.

    Requests that come together and whose prompts fit one chunk all fall to one slot of the pipeline; the others stay
    empty (engine-facts 4.3).  The prediction takes the slots as filled evenly, which the cap brings about.
    """
    stages = model.layout.pp
    if plan.engine != "sglang" or stages == 1 or users <= stages or plan.setting(CAP) is not None:
        return
    depth = plan.setting("pp-async-batch-depth")
    slots = stages + (depth if isinstance(depth, int) and not isinstance(depth, bool) else 0)
    together = interval_s(replace(model, slots=1), users, context)[0]
    yield ("users that come at once can all fall to one of the pipeline's slots while the others stay empty",
           f"--{CAP} {-(-users // slots)} (for {users} users; fewer than that many users are not helped)",
           users / together)
