"""Settings that would move a plan's speed on its machine, with the predicted gain."""

from collections.abc import Iterator
from dataclasses import replace

from rooftop.domain.architecture import Architecture
from rooftop.domain.finding import Finding
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.stepcost import Ledger
from rooftop.perfmodel.collectives import FAST
from rooftop.perfmodel.queueing import interval_s
from rooftop.perfmodel.roofline import roofline

DIRECT = {"sglang": "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "vllm": "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"}
LEAST = 0.03
"""Gains below are not told: they lie far inside the model's own errors."""


def gains(plan: Plan, architecture: Architecture, ledger: Ledger, users: int, context: float) -> tuple[Finding, ...]:
    """What each setting alone would bring one user and `users`, largest first."""
    before = _rates(plan, architecture, ledger, users, context)
    found = []
    for claim, remedy, changed in _changes(plan):
        after = _rates(changed, architecture, ledger, users, context)
        shares = [new / old - 1 for new, old in zip(after, before, strict=True)]
        if max(shares) >= LEAST:
            gain = f"{shares[0]:+.0%} for one user, {shares[1]:+.0%} for {users} (predicted)"
            evidence = (f"one user: {before[0]:.0f} to {after[0]:.0f} tok/s",
                        f"{users} users decoding: {before[1]:.0f} to {after[1]:.0f} tok/s")
            found.append((max(shares), Finding("speed setting", claim, evidence, remedy, gain)))
    return tuple(finding for _, finding in sorted(found, key=lambda pair: -pair[0]))


def _rates(plan: Plan, architecture: Architecture, ledger: Ledger, users: int, context: float) -> tuple[float, float]:
    model = roofline(plan, architecture, ledger)
    return 1 / interval_s(model, 1, context)[0], users / interval_s(model, users, context)[0]


def _changes(plan: Plan) -> Iterator[tuple[str, str, Plan]]:
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
