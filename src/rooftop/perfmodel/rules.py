"""The engines' rules on layouts, each with its place in the source."""

from collections.abc import Iterator

from rooftop.domain.engine import Refusal
from rooftop.perfmodel import flag_rules, shape_rules
from rooftop.perfmodel.case import Case, Rule

_S, _V, _L = ("sglang",), ("vllm",), ("llamacpp",)
_GPU, _ALL = (*_S, *_V), (*_S, *_V, *_L)

RULES: tuple[Rule, ...] = (
    Rule("the engine must read the model's files", _ALL, "llama.cpp: GGUF; SGLang, vLLM: safetensors",
         flag_rules.files, "name files that the engine reads, or another --engine"),
    Rule("there must be as many GPUs as ranks", _ALL, "S:server_args.py:585, V:config/parallel.py:934",
         flag_rules.gpus, "--machine names one with GPUs, as '8x H100 SXM'"),
    Rule("tp x pp must fill the nodes evenly, and replicas stay on one", _S, "S:arg_groups/validation_hook.py:172",
         flag_rules.nodes),
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
    Rule("experts must divide by ep", _S, "S:layers/moe/fused_moe_triton/layer.py:414, eplb/expert_location.py:256",
         shape_rules.experts),
    Rule("a matrix that is cut in its width must divide by the ranks", _GPU,
         "S:layers/moe/fused_moe_triton/layer.py:427", shape_rules.widths),
    Rule("a rank's share must be of whole quantization blocks", _GPU,
         "S:quantization/fp8.py:605, fp8_utils.py:2875, V:quantization/utils/fp8_utils.py:1326-1371",
         shape_rules.blocks),
    Rule("the experts' kernels must be made for it", _S, "S:arg_groups/moe_hook.py:161", flag_rules.kernels),
    Rule("redundant experts need balancing", _V, "V:config/parallel.py", flag_rules.redundant),
    Rule("elastic ep needs balancing, external balancing needs dp", _V, "V:config/parallel.py", flag_rules.elastic),
    Rule("the context must not exceed the model's", _GPU, "S, V: unless an environment variable allows it",
         shape_rules.context),
    Rule("split mode tensor is not made for every architecture", _L, "L:src/llama-arch.cpp:1196",
         shape_rules.tensor_split),
)
"""What needs the model or the machine.  What the plan alone can break, the engine's own `refuses` tells."""


def refusals(case: Case) -> Iterator[Refusal]:
    """All rules of the engine that refuse this layout, in the order of the table."""
    for rule in RULES:
        reason = rule.check(case) if case.engine in rule.engines else None
        if reason is not None:
            yield Refusal(rule.name, reason, rule.remedy)


def refuses(case: Case) -> Refusal | None:
    """The first rule that refuses this layout, None where it is legal."""
    return next(refusals(case), None)
