"""vLLM's own rules against a plan, each with the nearest change that passes (0.8 to 0.33)."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rooftop.domain.engine import Refusal
from rooftop.domain.layout import Layout
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.engines._options import Options, for_version, names, number, version_of
from rooftop.engines._vllm_config import SHORT

_LAYOUT = frozenset(("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size",
                     "decode-context-parallel-size", "enable-expert-parallel"))
_OURS = frozenset(("model", "served-model-name", "host", "port"))
_DEEPEP = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")


@dataclass(frozen=True, slots=True)
class _Asked:
    """A plan as the rules read it: its layout, its settings by their long names, the version's options."""

    plan: Plan
    layout: Layout
    settings: dict[str, SettingValue]
    options: Options

    def number(self, name: str) -> int | None:
        """A whole number as vLLM reads it; None for none or `auto`."""
        return whole(self.settings.get(name))

    def word(self, name: str) -> str:
        """A setting's value as text, "" for none."""
        return str(self.settings.get(name, "")).strip()

    def on(self, name: str) -> bool:
        """Whether a switch is given and on."""
        return self.settings.get(name) in (True, "true", "True", "")


def whole(value: SettingValue | None) -> int | None:
    """A whole number as vLLM reads it: 4096, `4k` (4000), `4K` (4096); None for none or `auto`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", str(value if value is not None else "").strip())
    if not match:
        return None
    power = {"": 0, "k": 1, "m": 2, "g": 3}[match[2].lower()]
    return int(float(match[1]) * (1000 if match[2].islower() else 1024) ** power)


def long_name(name: str) -> str:
    """A setting's long option without dashes, with what follows a dot: `cc.mode` is `compilation-config.mode`."""
    head, dot, rest = name.lstrip("-").partition(".")
    head = head.replace("_", "-")
    return SHORT.get(head, head).replace("_", "-") + dot + rest.replace("-", "_")


def refusals(plan: Plan) -> Iterator[Refusal]:
    """All rules that the plan breaks and that can be told without the model's configuration."""
    options = for_version("vllm", version_of(plan))
    asked = _Asked(plan, plan.layout or Layout(), {long_name(one.name): one.value for one in plan.settings}, options)
    yield from _layout(asked)
    for setting in plan.settings:
        yield from _option(setting, options)
    for variable in plan.environment:
        instead = options.idle_environment(variable.name)
        if instead:
            yield Refusal(f"vLLM {options.version} does not read {variable.name}", "it would change nothing", instead)
    for rule in _RULES:
        yield from rule(asked)


def _layout(asked: _Asked) -> Iterator[Refusal]:
    layout, options = asked.layout, asked.options
    if layout.attention_dp > 1:
        yield Refusal("vLLM has no attention replicas inside a tp group",
                      f"attention-dp {layout.attention_dp} was asked",
                      f"dp {layout.attention_dp} x tp {layout.tp // layout.attention_dp} with ep {layout.tp}: each "
                      "replica attends for itself and the experts are shared")
    ranks = layout.tp * layout.dp
    if layout.ep not in (1, ranks):
        yield Refusal("vLLM spreads experts over all tp x dp ranks, or not at all",
                      f"ep {layout.ep} was asked of tp {layout.tp} x dp {layout.dp}", f"ep {ranks} or ep 1")
    for kind, size, option in (("dp", layout.dp, "data-parallel-size"), ("ep", layout.ep, "enable-expert-parallel"),
                               ("dcp", layout.dcp, "decode-context-parallel-size")):
        if size > 1 and not options.has(option):
            yield Refusal(f"vLLM {options.version} has no {kind}", f"{kind} {size} was asked",
                          f"{kind} 1, or a newer version")
    if layout.dcp > 1 and layout.tp % layout.dcp:
        yield Refusal("decode context parallel ranks divide tp", f"dcp {layout.dcp} was asked of tp {layout.tp}",
                      f"dcp {max(size for size in range(1, layout.dcp) if layout.tp % size == 0)}")
    machine = asked.plan.machine
    gpus, nodes = (len(machine.gpus), max(machine.nodes, asked.number("nnodes") or 1)) if machine else (0, 1)
    elsewhere = asked.word("distributed-executor-backend") == "ray" or "data-parallel-size-local" in asked.settings
    if gpus and layout.ranks > gpus * nodes and not elsewhere:
        yield Refusal("each rank needs a GPU", f"{layout} needs {layout.ranks} and {gpus * nodes} are here",
                      "a smaller layout, or distributed-executor-backend ray over more machines")


def _option(setting: Setting, options: Options) -> Iterator[Refusal]:
    """A setting against the version's parser."""
    written, version = setting.name.lstrip("-"), f"vLLM {options.version}"
    name = long_name(written).partition(".")[0]
    if name in _LAYOUT:
        yield Refusal("the layout sets the parallel sizes", f"the setting {setting.name} was given too",
                      "put it into the layout")
        return
    if name in _OURS:
        yield Refusal("rooftop sets model, name, host and port", f"the setting {written} was given too", "leave it out")
        return
    if written == "O" or name == "optimization-level":
        return
    option, begun = options.find(name), options.candidates(name)
    old = options.old_engine(option.name) if option else ""
    if option is None and begun:
        yield Refusal(f"{version} refuses an ambiguous option", f"{name} could be {names(begun)}",
                      f"write one of them in full: {names(begun)}")
    elif option is None and options.ahead:
        return  # its own parser decides
    elif option is None:
        yield Refusal(f"{version} does not know the option {name}", "it stops at its command line",
                      options.instead(name) or "leave it out; --help=all lists what it knows")
    elif options.unread(option.name):
        yield Refusal(f"{version} takes {option.name} and never reads it", "it would change nothing",
                      options.unread(option.name))
    elif old and setting.value not in (False, "auto"):
        yield Refusal(f"{version} serves {option.name} with its old engine only",
                      "it would move the whole server there, or stop it", old)
    elif option.kind == "value" and isinstance(setting.value, bool) and "." not in written:
        yield Refusal(f"{option.name} needs a value", f"{str(setting.value).lower()} was given", "give its value")


def _steps(asked: _Asked) -> Iterator[Refusal]:
    """What a step may hold, and how it is scheduled."""
    seqs, tokens, length = (asked.number(name) for name in ("max-num-seqs", "max-num-batched-tokens", "max-model-len"))
    if seqs and tokens and tokens < seqs:
        yield Refusal("max-num-batched-tokens must be at least max-num-seqs", f"{tokens} < {seqs}",
                      f"max-num-batched-tokens {seqs} or more")
    if tokens and length and tokens < length and asked.settings.get("enable-chunked-prefill") is False:
        yield Refusal("without chunked prefill a step must hold a whole prompt",
                      f"max-num-batched-tokens {tokens} < max-model-len {length}", "leave chunked prefill on")
    active = asked.number("max-num-active-seqs")
    if active and seqs and active > seqs:
        yield Refusal("max-num-active-seqs caps admission below max-num-seqs", f"{active} > {seqs}",
                      f"max-num-active-seqs {seqs} or less")
    share = asked.settings.get("gpu-memory-utilization")
    if isinstance(share, int | float) and not 0 < share <= 1:
        yield Refusal("gpu-memory-utilization is a share", f"{share} was asked", "a value above 0 and at most 1")
    version = number(asked.options.version)
    if asked.on("async-scheduling") and asked.layout.pp > 1 and version < number("0.15"):
        yield Refusal("before 0.15 async scheduling has no pipeline", f"pp {asked.layout.pp} was asked",
                      "leave async-scheduling out, or pp 1")
    partial = asked.number("max-num-partial-prefills") or 1
    if partial > 1 and version > number("0.10.2"):
        yield Refusal("vLLM prefills one long prompt at a time", f"max-num-partial-prefills {partial} was asked",
                      "long-prefill-token-threshold")


def _experts(asked: _Asked) -> Iterator[Refusal]:
    layout, settings = asked.layout, asked.settings
    ranks = layout.tp * layout.dp
    if asked.on("enable-eplb") and layout.ep == 1:
        yield Refusal("balancing experts needs expert parallelism", "enable-eplb was asked with ep 1",
                      f"ep {ranks}" if ranks > 1 else "leave it out")
    spare = asked.number("num-redundant-experts") or asked.number("eplb-config.num_redundant_experts") or _inner(
        asked.word("eplb-config"), "num_redundant_experts")
    if spare and not asked.on("enable-eplb"):
        yield Refusal("redundant experts need enable-eplb", f"{spare} redundant experts were asked",
                      "enable-eplb, or no redundant experts")
    kind = asked.word("all2all-backend")
    if kind in ("naive", "pplx") and number(asked.options.version) >= number("0.17" if kind == "pplx" else "0.19"):
        yield Refusal(f"the all-to-all {kind} is gone", "vLLM takes allgather_reducescatter instead",
                      "all2all-backend allgather_reducescatter or deepep_low_latency")
    elif kind and layout.dp == 1 and "prefill-context-parallel-size" not in settings:
        yield Refusal("an all-to-all works between replicas",
                      f"all2all-backend {kind} was asked with dp 1, where experts end in one all-reduce over tp",
                      "leave it out, or dp 2 or more with ep")
    if asked.on("enable-dbo") and kind not in _DEEPEP:
        yield Refusal("two micro-batches overlap only on an all-to-all that leaves them apart",
                      f"all2all-backend {kind or 'allgather_reducescatter'}", f"all2all-backend {_DEEPEP[0]}")
    if asked.on("enable-elastic-ep") and (not asked.on("enable-eplb") or layout.pp > 1):
        yield Refusal("elastic expert parallelism needs enable-eplb and no pipeline",
                      f"enable-eplb {asked.on('enable-eplb')}, pp {layout.pp}", "enable-eplb and pp 1")


def _nodes(asked: _Asked) -> Iterator[Refusal]:
    layout, local = asked.layout, asked.number("data-parallel-size-local")
    if asked.on("data-parallel-external-lb") and layout.dp == 1:
        yield Refusal("an external balancer needs replicas", "data-parallel-external-lb was asked with dp 1",
                      "dp 2 or more")
    if local and local > layout.dp:
        yield Refusal("a node holds at most all replicas", f"data-parallel-size-local {local} of dp {layout.dp}",
                      f"data-parallel-size-local {layout.dp} or less")
    nodes, executor = asked.number("nnodes") or 1, asked.word("distributed-executor-backend")
    if nodes > 1 and executor not in ("", "mp", "uni", "external_launcher"):
        yield Refusal("nnodes is for mp, uni and external_launcher", f"{executor} over {nodes} nodes was asked",
                      "leave nnodes out, or distributed-executor-backend mp")
    if (layout.tp * layout.pp) % nodes and layout.dp == 1:
        yield Refusal("tp x pp must be divisible by the number of nodes",
                      f"{layout.tp * layout.pp} ranks over {nodes} nodes", f"tp {layout.tp * nodes} x pp {layout.pp}")


def _inner(text: str, key: str) -> int:
    """A whole number inside a JSON setting, 0 for none."""
    try:
        tree = json.loads(text) if text.startswith("{") else {}
    except ValueError:
        return 0
    value = tree.get(key) if isinstance(tree, dict) else 0
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


_RULES: tuple[Callable[[_Asked], Iterator[Refusal]], ...] = (_steps, _experts, _nodes)
