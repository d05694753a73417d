"""SGLang's own rules against a plan, each with the nearest change that passes (0.4 to 0.5.23)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rooftop.domain.engine import Refusal
from rooftop.domain.layout import Layout
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.engines._options import Options, for_version, names, number, version_of
from rooftop.engines._sglang_args import field_name

_LAYOUT_FIELDS = frozenset(("tp_size", "pp_size", "dp_size", "ep_size", "attn_dp_size", "dcp_size",
                            "enable_dp_attention", "enable_ep_moe"))
_OURS = frozenset(("model_path", "served_model_name", "host", "port"))
# All-to-all kinds that span the tensor-parallel group: overrides.py, `_A2A_EP_SPANNING_BACKENDS`.
_SPANNING = frozenset(("megamoe", "deepep", "deepep_v2", "mooncake", "nixl", "ascend_fuseep", "flashinfer",
                       "flashinfer_megamoe", "mori", "pplx"))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A plan as the rules read it: its layout, its fields by their own names, the version's options."""

    plan: Plan
    layout: Layout
    fields: dict[str, SettingValue]
    options: Options

    def number(self, field: str) -> int | None:
        value = self.fields.get(field)
        text = str(value).strip() if value is not None and not isinstance(value, bool) else ""
        return int(text) if text.lstrip("-").isdigit() else None

    def word(self, field: str) -> str:
        value = self.fields.get(field)
        return "" if value is None or isinstance(value, bool) else str(value).strip()

    def on(self, field: str) -> bool:
        return self.fields.get(field) in (True, "true", "True", 1)

    @property
    def experts_move(self) -> str:
        """The all-to-all kind that is asked for, "" for none."""
        kind = self.word("moe_a2a_backend")
        return kind if kind in _SPANNING else ""


def refusals(plan: Plan) -> Iterator[Refusal]:
    """All rules that the plan breaks and that can be told without the model's configuration."""
    options = for_version("sglang", version_of(plan))
    asked = _Asked(plan, plan.layout or Layout(), {field_name(one.name): one.value for one in plan.settings}, options)
    for setting in plan.settings:
        yield from _option(setting, options)
    for rule in _RULES:
        yield from rule(asked)


def _option(setting: Setting, options: Options) -> Iterator[Refusal]:
    """A setting against the version's parser."""
    name, field = setting.name.lstrip("-"), field_name(setting.name)
    version = f"SGLang {options.version}"
    if field in _LAYOUT_FIELDS:
        remedy = ("attention-dp in the layout (the engine rewrites this to attn-dp-size)"
                  if field == "enable_dp_attention" else "put it into the layout")
        yield Refusal("the layout sets the parallel sizes", f"the setting {name} was given too", remedy)
        return
    if field in _OURS:
        yield Refusal("rooftop sets model, name, host and port", f"the setting {name} was given too", "leave it out")
        return
    option, begun = options.find(name), options.candidates(name)
    if option is None and begun:
        instead = options.instead(name)
        yield Refusal(f"{version} refuses an ambiguous option", f"{name} could be {names(begun)}",
                      instead or f"write one of them in full: {names(begun)}")
    elif option is None and options.ahead:
        return  # its own parser decides
    elif option is None:
        yield Refusal(f"{version} does not know the option {name}", "it stops at its command line",
                      options.instead(name) or "leave it out; --help lists what it knows")
    elif options.unread(option.name):
        yield Refusal(f"{version} takes {option.name} and never reads it", "it would change nothing",
                      options.unread(option.name))
    elif option.kind in ("value", "values") and isinstance(setting.value, bool):
        yield Refusal(f"{option.name} needs a value", f"{str(setting.value).lower()} was given", "give its value")


def _version(asked: _Asked) -> Iterator[Refusal]:
    """Parallel kinds that the version has no option for."""
    layout, options = asked.layout, asked.options
    needs = (("pp", layout.pp, "pp-size"), ("ep", layout.ep, "ep-size"), ("dcp", layout.dcp, "dcp-size"),
             ("attention-dp", layout.attention_dp, "enable-dp-attention"), ("dp", layout.dp, "dp-size"))
    for kind, size, option in needs:
        if size > 1 and not options.has(option) and not (kind == "attention-dp" and options.has("attn-dp-size")):
            yield Refusal(f"SGLang {options.version} has no {kind}", f"{kind} {size} was asked",
                          f"{kind} 1, or a newer version")


def _replicas(asked: _Asked) -> Iterator[Refusal]:
    layout, nodes = asked.layout, asked.number("nnodes") or 1
    if layout.dp > 1 and layout.attention_dp > 1:
        yield Refusal("SGLang has replicas or attention replicas, not both",
                      f"dp {layout.dp} and attention-dp {layout.attention_dp} were asked",
                      f"dp 1 with attention-dp {layout.attention_dp}, or one server a replica")
    if layout.dp > 1 and nodes > 1:
        yield Refusal("replicas live on one node", f"dp {layout.dp} over {nodes} nodes was asked",
                      "attention-dp, or one server a node")
    if (layout.tp * layout.pp) % nodes:
        yield Refusal("tp x pp must be divisible by the number of nodes",
                      f"{layout.tp * layout.pp} ranks over {nodes} nodes", f"tp {layout.tp * nodes} x pp {layout.pp}")
    machine = asked.plan.machine
    gpus = len(machine.gpus) * max(machine.nodes, nodes) if machine else 0
    if gpus and layout.ranks > gpus and asked.word("device") in ("", "cuda"):
        yield Refusal("each rank needs a GPU", f"{layout} needs {layout.ranks} and {gpus} are here",
                      "a smaller layout")
    if layout.attention_dp > 1 and layout.dcp > 1 and (layout.tp // layout.attention_dp) % layout.dcp:
        yield Refusal("decode context parallel ranks lie inside an attention group",
                      f"dcp {layout.dcp} in groups of {layout.tp // layout.attention_dp}",
                      f"dcp {_below(layout.dcp, layout.tp // layout.attention_dp)}")
    if asked.on("enable_dp_lm_head") and layout.attention_dp == 1:
        yield Refusal("a head split over attention groups needs attention-dp", "the engine drops enable-dp-lm-head",
                      "leave it out, or attention-dp 2 or more")


def _experts(asked: _Asked) -> Iterator[Refusal]:
    layout, kind, runner = asked.layout, asked.experts_move, asked.word("moe_runner_backend")
    if layout.tp % layout.ep:
        yield Refusal("experts are spread inside one tp group", f"ep {layout.ep} was asked of tp {layout.tp}",
                      f"ep {_below(layout.ep, layout.tp)}, or tp {layout.tp * layout.dp} with attention-dp {layout.dp} "
                      f"and ep {layout.tp * layout.dp}")
    elif number(asked.options.version) < number("0.5.2") and layout.ep not in (1, layout.tp):
        yield Refusal("before 0.5.2 expert parallelism is as wide as tp", f"ep {layout.ep} was asked of tp {layout.tp}",
                      f"ep {layout.tp} or ep 1")
    if kind and layout.ep != layout.tp:
        yield Refusal(f"the all-to-all {kind} makes ep = tp", f"ep {layout.ep} was asked of tp {layout.tp}",
                      f"ep {layout.tp}, or moe-a2a-backend none")
    if runner in ("flashinfer_cutlass", "flashinfer_cutedsl") and layout.ep not in (1, layout.tp):
        yield Refusal(f"the runner {runner} takes ep 1 or ep = tp", f"ep {layout.ep} was asked of tp {layout.tp}",
                      f"ep {layout.tp} or ep 1")
    if runner == "cutlass" and asked.word("quantization") in ("fp8", "mxfp8") and layout.ep > 1:
        yield Refusal("FP8 experts on cutlass take ep 1", f"ep {layout.ep} was asked",
                      "ep 1, or moe-runner-backend triton or deep_gemm")
    yield from _exchange(asked, kind, runner)
    if asked.on("enable_eplb") and layout.ep == 1:
        yield Refusal("balancing experts needs expert parallelism", "enable-eplb was asked with ep 1",
                      f"ep {layout.tp}" if layout.tp > 1 else "leave it out")
    if not kind and asked.word("ep_dispatch_algorithm") in ("static", "lp") and asked.on("enable_eplb"):
        yield Refusal("without an all-to-all every rank must pick the same replica of an expert",
                      f"ep-dispatch-algorithm {asked.word('ep_dispatch_algorithm')}", "ep-dispatch-algorithm dynamic")
    dense = asked.number("moe_dense_tp_size")
    if dense is not None and dense not in (1, layout.tp):
        yield Refusal("dense layers of an expert model are cut by 1 or by tp", f"moe-dense-tp-size {dense} was asked",
                      f"1 or {layout.tp}")


def _exchange(asked: _Asked, kind: str, runner: str) -> Iterator[Refusal]:
    """What each all-to-all asks of the rest: moe_hook.py."""
    layout, overlap = asked.layout, asked.on("enable_two_batch_overlap")
    if kind in ("flashinfer", "flashinfer_megamoe") and layout.attention_dp != layout.tp:
        yield Refusal(f"the all-to-all {kind} needs one attention group a rank",
                      f"attention-dp {layout.attention_dp} in tp {layout.tp}", f"attention-dp {layout.tp}")
    if kind == "pplx" and (layout.attention_dp < 2 or runner not in ("", "auto", "deep_gemm")):
        yield Refusal("the all-to-all pplx needs attention-dp of at least 2 and the runner deep_gemm",
                      f"attention-dp {layout.attention_dp}, runner {runner or 'auto'}",
                      "attention-dp 2 or more and moe-runner-backend deep_gemm")
    if kind == "deepep_v2" and (runner not in ("", "auto", "deep_gemm") or overlap
                                or asked.on("enable_single_batch_overlap")):
        yield Refusal("the all-to-all deepep_v2 runs on deep_gemm without batch overlap",
                      f"runner {runner or 'auto'}, overlap {overlap}", "moe-runner-backend deep_gemm, no overlap")
    if overlap and not kind and layout.attention_dp == 1:
        yield Refusal("overlapping two batches needs an all-to-all or attention-dp",
                      "enable-two-batch-overlap was asked with neither", "moe-a2a-backend deepep, or leave it out")
    groups = asked.number("moe_dp_size") or 1
    if groups > 1 and (layout.tp % groups or layout.pp > 1 or (layout.ep > 1 and layout.ep * groups != layout.tp)):
        yield Refusal("moe-dp divides tp, takes no pipeline, and with ep fills tp",
                      f"moe-dp-size {groups} with {layout}", f"ep {max(layout.tp // groups, 1)}, pp 1")
    context = asked.number("attn_cp_size") or 1
    if context > 1 and layout.tp % (layout.attention_dp * context):
        yield Refusal("tp must be divisible by attention-dp x attn-cp-size",
                      f"tp {layout.tp}, attention-dp {layout.attention_dp}, attn-cp-size {context}",
                      f"attn-cp-size {_below(context, layout.tp // layout.attention_dp)}")


def _pipeline(asked: _Asked) -> Iterator[Refusal]:
    layout, algorithm = asked.layout, asked.word("speculative_algorithm").upper()
    depth = asked.number("pp_max_micro_batch_size")
    if depth is not None and depth < 1:
        yield Refusal("pp-max-micro-batch-size counts requests", f"{depth} was asked", "1 or more, or leave it out")
    if layout.pp == 1:
        return
    environment = {setting.name: str(setting.value) for setting in asked.plan.environment}
    experimental = environment.get("SGLANG_ENABLE_PP_SPEC") in ("1", "true", "True") and layout.attention_dp == 1
    prefill = asked.word("disaggregation_mode") == "prefill"
    if algorithm and not (algorithm == "EAGLE" and (prefill or experimental)) and not (
            algorithm == "DSPARK" and prefill):
        yield Refusal("with pipeline stages speculation is EAGLE on a prefill server only",
                      f"{algorithm} was asked with pp {layout.pp}", "no speculation, or tp instead of pp")
    if asked.on("enable_mixed_chunk") and number(asked.options.version) < number("0.5.12"):
        yield Refusal("before 0.5.12 pipeline stages take no mixed chunks", f"pp {layout.pp} was asked",
                      "leave enable-mixed-chunk out")
    for field, why in (("min_free_slots_delay", "free slots are counted by micro-batch"),
                       ("elastic_ep_backend", "elastic expert parallelism takes no pipeline"),
                       ("enable_pdmux", "PD multiplexing takes no pipeline")):
        if asked.fields.get(field) not in (None, False, "none"):
            yield Refusal(f"{field.replace('_', '-')} takes no pipeline stages", f"{why}; pp {layout.pp} was asked",
                          "leave it out, or pp 1")
    if (asked.number("dwdp_size") or 1) > 1:
        yield Refusal("dwdp takes no pipeline stages", f"pp {layout.pp} was asked", "leave it out, or pp 1")


def _settings(asked: _Asked) -> Iterator[Refusal]:
    """Settings that contradict each other, or what they may be: validation_hook.py, kv_cache_hook.py."""
    chunk, page = asked.number("chunked_prefill_size"), asked.number("page_size")
    if chunk and page and chunk > 0 and chunk % page:
        yield Refusal("chunked-prefill-size must be divisible by page-size", f"{chunk} by {page}",
                      f"chunked-prefill-size {max(chunk // page, 1) * page}")
    if asked.on("enable_pdmux") and (chunk != -1 or not asked.on("disable_overlap_schedule")):
        yield Refusal("PD multiplexing takes no chunks and no overlap scheduler", "enable-pdmux was asked alone",
                      "chunked-prefill-size -1 and disable-overlap-schedule")
    if asked.on("enable_hierarchical_cache") and asked.on("disable_radix_cache"):
        yield Refusal("a hierarchical cache is a radix cache", "disable-radix-cache was asked too",
                      "leave one of them out")
    if asked.on("disable_cuda_graph_padding") and asked.on("enable_torch_compile"):
        yield Refusal("without padding every batch size is compiled anew", "enable-torch-compile was asked too",
                      "leave one of them out")
    if asked.word("retraction_policy") == "priority" and not asked.on("enable_priority_scheduling"):
        yield Refusal("retraction by priority needs priorities", "enable-priority-scheduling was not asked", "add it")
    policy = asked.word("schedule_policy")
    if asked.on("enable_priority_scheduling") and policy not in ("", "fcfs", "lof"):
        yield Refusal("priorities go with fcfs or lof", f"schedule-policy {policy} was asked", "schedule-policy fcfs")
    share = asked.fields.get("mem_fraction_static")
    if isinstance(share, int | float) and not isinstance(share, bool) and not 0 < share < 1:
        yield Refusal("mem-fraction-static is a share", f"{share} was asked", "a value between 0 and 1")
    if ":" in asked.plan.model.name:
        yield Refusal("a served name has no colon", f"{asked.plan.model.name} (the colon separates LoRA adapters)",
                      f"name the model {asked.plan.model.name.replace(':', '-')}")


def _below(size: int, whole: int) -> int:
    """The largest divisor of `whole` that is at most `size`."""
    return max(one for one in range(1, max(min(size, whole), 1) + 1) if whole % one == 0)


_RULES: tuple[Callable[[_Asked], Iterator[Refusal]], ...] = (_version, _replicas, _experts, _pipeline, _settings)
