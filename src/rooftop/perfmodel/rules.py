"""The engines' rules on layouts, each with its place in the source."""

from collections.abc import Iterator

from rooftop.domain.engine import Refusal
from rooftop.perfmodel import flag_rules, shape_rules
from rooftop.perfmodel.case import Case, Rule

_S, _V, _L = ("sglang",), ("vllm",), ("llamacpp",)
_GPU, _ALL = (*_S, *_V), (*_S, *_V, *_L)

RULES: tuple[Rule, ...] = (
    Rule("the engine must read the model's files", _ALL, "llama.cpp: GGUF; SGLang, vLLM: safetensors",
         flag_rules.files),
    Rule("there must be as many GPUs as ranks", _ALL, "S:server_args.py:585, V:config/parallel.py:934",
         flag_rules.gpus),
    Rule("the ranks of a tp group must be equal GPUs", _GPU, "even shards", flag_rules.one_kind),
    Rule("tp x pp must fill the nodes evenly, and replicas stay on one", _S, "S:arg_groups/validation_hook.py:172",
         flag_rules.nodes),
    Rule("dp and attention-dp exclude each other", _S, "S:arg_groups/parallel_hook.py:287", flag_rules.groups),
    Rule("dcp must divide the ranks of attention", _S, "S:configs/model_config.py:1700", flag_rules.dcp),
    Rule("dcp takes GQA only where KV heads are copied", _V, "V:config/model.py:1564-1600", shape_rules.dcp_heads),
    Rule("dcp saves memory only where ranks hold copies of the cache", _S, "S:configs/model_config.py:1700",
         shape_rules.dcp_gain),
    Rule("attention heads must divide by the ranks that share them", _GPU,
         "S:models/llama.py:183, V:config/model.py:1551", shape_rules.heads),
    Rule("KV heads must divide by the ranks, or be copied to a whole number of them", _GPU,
         "S:models/qwen3_moe.py:506-517", shape_rules.kv_heads),
    Rule("the padded vocabulary must divide by tp", _V, "V:model_executor/layers/vocab_parallel_embedding.py",
         shape_rules.vocabulary),
    Rule("every stage needs a layer", _ALL, "S:distributed/utils.py:110, V:distributed/utils.py:198",
         shape_rules.every_stage),
    Rule("expert parallelism needs experts", _GPU, "V:config/model.py (_verify_with_expert_parallelism)",
         shape_rules.no_experts),
    Rule("ep must divide tp", _S, "S:runtime_context.py:138 (unchecked there: it builds broken groups)",
         flag_rules.ep_in_tp),
    Rule("ep is all ranks of tp x dp, or 1", _V, "V:fused_moe/config.py:1105-1215", flag_rules.ep_all),
    Rule("experts must divide by ep", _S, "S:layers/moe/fused_moe_triton/layer.py:414, eplb/expert_location.py:256",
         shape_rules.experts),
    Rule("a matrix that is cut in its width must divide by the ranks", _GPU,
         "S:layers/moe/fused_moe_triton/layer.py:427", shape_rules.widths),
    Rule("a rank's share must be of whole quantization blocks", _GPU,
         "S:quantization/fp8.py:605, fp8_utils.py:2875, V:quantization/utils/fp8_utils.py:1326-1371",
         shape_rules.blocks),
    Rule("the all-to-all backend sets ep and attention-dp", _S, "S:arg_groups/overrides.py:1575-1620, moe_hook.py",
         flag_rules.all_to_all),
    Rule("the experts' kernels take some ep only", _S, "S:arg_groups/moe_hook.py:89-161", flag_rules.moe_runner),
    Rule("switches need what they switch", _S, "S:arg_groups/validation_hook.py:172-345", flag_rules.switches),
    Rule("balancing experts needs ep", _GPU, "S:eplb/expert_location.py:256, V:config/parallel.py",
         flag_rules.balancing),
    Rule("elastic ep and external balancing need dp", _V, "V:config/parallel.py", flag_rules.elastic),
    Rule("speculation under pp is for prefill servers only", _S, "S:arg_groups/validation_hook.py",
         flag_rules.pp_speculation),
    Rule("some features know no pp", _S, "S:arg_groups/validation_hook.py", flag_rules.pp_alone),
    Rule("the context must not exceed the model's", _GPU, "S, V: unless an environment variable allows it",
         shape_rules.context),
    Rule("split mode tensor is not made for every architecture", _L, "L:src/llama-arch.cpp:1196",
         shape_rules.tensor_split),
)


def refusals(case: Case) -> Iterator[Refusal]:
    """All rules of the engine that refuse this layout, in the order of the table; without a remedy."""
    for rule in RULES:
        reason = rule.check(case) if case.engine in rule.engines else None
        if reason is not None:
            yield Refusal(rule.name, reason)


def refuses(case: Case) -> Refusal | None:
    """The first rule that refuses this layout, None where it is legal."""
    return next(refusals(case), None)
