"""Whether a plan fits: pools, users, head room, or the refusal and its remedy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor

from rooftop import units
from rooftop.domain.architecture import Architecture
from rooftop.domain.engine import Refusal
from rooftop.domain.fit import Fit, Stage, Use
from rooftop.domain.machine import Gpu, Machine
from rooftop.domain.plan import Plan, Setting
from rooftop.perfmodel import memory, pools
from rooftop.perfmodel.budget import OTHERS, Budget, budget
from rooftop.perfmodel.case import Case, case_of
from rooftop.perfmodel.cuts import partition_of, stages
from rooftop.perfmodel.memory import Cache

CONTEXT_FLAG = {"vllm": "max-model-len", "sglang": "context-length", "llamacpp": "ctx-size"}
FP8_FLAG = {"vllm": Setting("kv-cache-dtype", "fp8"), "sglang": Setting("kv-cache-dtype", "fp8_e4m3")}
MOST_SHARE = 0.98


@dataclass(frozen=True, slots=True)
class Part:
    """One GPU of a stage: what it holds before the KV pool, and the budget that the pool comes from."""

    number: int
    layers: tuple[int, ...]
    weights: tuple[Use, ...]
    caches: tuple[Cache, ...]
    budget: Budget

    def pool(self, end: str = "") -> float:
        """Bytes left for the KV pool, below 0 where the weights exceed the budget; `end` as in `Budget.room`."""
        return self.budget.room(end) - sum(_end(use, end) for use in self.weights)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights on this GPU."""
        return sum(use.bytes for use in self.weights)


def fit(plan: Plan, architecture: Architecture, input_tokens: int, output_tokens: int) -> Fit:
    """What the plan's layout holds on its machine: users with `input_tokens` + `output_tokens` each, all in the cache
    at once at their full length.

    The plan must be legal (`rules.refuses`).  Raises ValueError where the plan has no machine or its GPUs' memory is
    not known.
    """
    case = case_of(plan, architecture)
    if case.machine is None:
        raise ValueError("a plan without a machine cannot be fitted")
    parts = tuple(_parts(case, case.machine, plan))
    request = input_tokens + output_tokens
    context = case.whole(CONTEXT_FLAG.get(case.engine, "")) or architecture.context or request
    ends = {end: [pools.held(case.engine, part.caches, part.pool(end), request, context) for part in parts]
            for end in ("", "low", "high")}
    least = {end: min(held.tokens for held in held_by_stage) for end, held_by_stage in ends.items()}
    users = min(held.users for held in ends[""])
    count = case.layout.dp * case.layout.attention_dp
    limit, bound = _limit(case, parts[0].budget, least[""], context)
    made = tuple(_stage(part, held) for part, held in zip(parts, ends[""], strict=True))
    smallest = min(parts, key=lambda part: part.budget.total)
    found = Fit(case.engine, case.layout, smallest.budget.total, smallest.budget.allowed, made, least[""],
                least["high"], least["low"], count, min(users, limit) * count if users > 0 else 0,
                bound if limit < users else "KV cache", min(held.longest for held in ends[""]),
                settings=smallest.budget.settings, notes=tuple(_notes(case, parts, made)))
    longest_safe = min(held.longest for held in ends["high"])
    refusal, change = _refusal(case, parts, found, request, context, longest_safe)
    return _with_raised(replace(found, refusal=refusal, change=change), case, parts, request, context)


def _with_raised(found: Fit, case: Case, parts: Sequence[Part], request: int, context: int) -> Fit:
    """With the largest share of memory that the estimates allow, and what the pools then hold."""
    own = parts[0].budget
    if not own.share or found.refusal is not None:
        return found
    shares = [part.budget.most_share for part in parts]
    share = floor(1000 * min(MOST_SHARE, *shares, 1.0)) / 1000
    if share <= own.factor + 0.005:
        return found
    more = share - own.factor
    held = [pools.held(case.engine, part.caches, part.pool() + more * part.budget.base, request, context)
            for part in parts]
    tokens = min(one.tokens for one in held)
    limit, _ = _limit(case, own, tokens, context)
    return replace(found, raised=Setting(own.share, share), raised_tokens=tokens,
                   raised_users=min(min(one.users for one in held), limit) * found.pools)


def _end(use: Use, end: str) -> float:
    value = use.low if end == "low" else use.high if end == "high" else None
    return use.bytes if value is None else value


def _parts(case: Case, machine: Machine, plan: Plan) -> Iterator[Part]:
    """The stages, each with the smallest of the GPUs that hold it in any replica."""
    layout, architecture = case.layout, case.architecture
    for number, layers in enumerate(stages(case.engine, architecture.layers, layout.pp, partition_of(plan))):
        gpu = _smallest(machine, [replica * layout.tp * layout.pp + number * layout.tp + rank
                                  for replica in range(layout.dp) for rank in range(layout.tp)])
        value_bytes = memory.kv_value_bytes(architecture, case.engine, case.settings, gpu.sm)
        speculates = bool(architecture.mtp) and (case.says("speculative-algorithm") in ("eagle", "nextn")
                                                 or "mtp" in case.says("speculative-config"))
        yield Part(number, layers,
                   memory.weights(architecture, layout, case.ranks, number, layers, speculates=speculates),
                   memory.caches(architecture, layout, case.ranks, layers, value_bytes),
                   budget(case, gpu, (number, len(layers)), machine.memory_bytes // layout.dp, plan))


def _smallest(machine: Machine, ranks: Sequence[int]) -> Gpu:
    found = [machine.gpu(rank) for rank in ranks if rank < machine.world]
    return min(found, key=lambda gpu: gpu.memory_bytes or 0, default=Gpu("no GPU"))


def _limit(case: Case, own: Budget, tokens: int, context: int) -> tuple[int, str]:
    """The engine's own limit on the running requests of one pool, and its flag.

    SGLang: min(clamp(KV tokens / context x 512, 2048, 4096), KV tokens / 2) (kv_cache_configurator.py:3119).
    """
    if case.engine == "sglang":
        given = own.requests
        limit = max(1, given // case.layout.attention_dp) if given else max(2048, min(4096, tokens * 512 // context))
        return min(limit, tokens // 2), f"max-running-requests {given or 'default'}"
    if case.engine == "vllm":
        return own.requests or 1, f"max-num-seqs {own.requests}"
    slots = case.whole("parallel")
    return (slots, f"parallel {slots}") if slots > 0 else (1 << 30, "")


def _stage(part: Part, held: pools.Held) -> Stage:
    pool = max(0.0, part.pool())
    used = part.weight_bytes + pool + part.budget.rest()
    uses = (*part.weights, Use("kv cache", pool - held.state_bytes, basis="rule"),
            *((Use("states", held.state_bytes, basis="rule"),) if held.state_bytes else ()), *part.budget.uses)
    return Stage(part.number, part.layers, uses, sum(cache.growth for cache in part.caches), pool, held.tokens,
                 part.budget.total - used)


def _notes(case: Case, parts: Sequence[Part], made: Sequence[Stage]) -> Iterator[str]:
    layout, names = case.layout, {kind.kind for kind in case.architecture.attention}
    if "mla" in names and layout.tp // layout.attention_dp > layout.dcp:
        yield (f"MLA's latent cache is the same on all {layout.tp // layout.attention_dp} ranks of attention: more tp "
               "holds no more tokens; attention-dp, pp, dcp or an fp8 cache do")
    copies = [kind for kind in case.architecture.attention if kind.kind in ("full", "sliding", "chunked")
              and kind.kv_heads * layout.dcp < case.ranks.attention]
    if copies:
        yield f"{copies[0].kv_heads} KV heads are copied to {case.ranks.attention} ranks"
    if layout.pp > 1 and len({len(stage.layers) for stage in made}) > 1:
        yield "layers a stage: " + ", ".join(str(len(stage.layers)) for stage in made)
    kinds = {gpu.kind or gpu.name for gpu in case.machine.gpus} if case.machine else set()
    if len(kinds) > 1:
        yield f"GPUs of {len(kinds)} kinds ({', '.join(sorted(kinds))}): each stage counts with its smallest"
    if layout.dcp > 1:
        yield "whether the attention kernels of this GPU and model take dcp is not checked"
    if "compressed" in names:
        yield "the pool of compressed attention is an estimate: the engine's own rule is not modelled"
    if case.engine == "sglang" and case.architecture.multimodal and "mem-fraction-static" not in case.settings:
        yield "SGLang lowers its default share for the encoder, whose own weights are not counted here"
    if any(stage.left_bytes < 0 for stage in made):
        flag = parts[0].budget.share
        yield (f"the estimates exceed the memory by {units.size(-min(stage.left_bytes for stage in made))}"
               + (f": if it runs out while it captures graphs, lower --{flag}" if flag else ""))


def _refusal(case: Case, parts: Sequence[Part], found: Fit, request: int, context: int, longest_safe: int
             ) -> tuple[Refusal | None, tuple[Setting, ...]]:
    """Why it does not fit, and the settings of the nearest change that does; (None, ()) where it fits."""
    longest = case.architecture.context
    if longest and request > longest:
        return Refusal("the request must not exceed the model's context", f"{request} tokens a request, "
                       f"{case.architecture.name} was made for {longest}", f"at most {longest} tokens"), ()
    if min(stage.kv_tokens for stage in found.stages) < request or found.users < 1:
        worst = min(parts, key=lambda part: part.pool() - pools.need(case.engine, part.caches, request))
        change, remedy = _nearest(case, worst, found, request)
        return Refusal("weights and one request must fit", _reason(worst, request), remedy), change
    if case.engine == "vllm" and (taken := _taken(parts)) is not None:
        return taken
    if case.engine == "vllm" and found.longest < context:
        least = max(request, min(longest_safe, found.longest) // 1024 * 1024)
        change = (Setting("max-model-len", least),)
        return Refusal("vLLM starts only if one request of max-model-len fits", f"max-model-len is {context} and the "
                       f"KV cache holds one request of {found.longest} tokens", f"--max-model-len {least}"), change
    return None, ()


def _taken(parts: Sequence[Part]) -> tuple[Refusal, tuple[Setting, ...]] | None:
    """vLLM does not start where less is free than its share (V:v1/worker/utils.py:766)."""
    for part in parts:
        own = part.budget
        held = sum(use.bytes for use in own.uses if use.note == OTHERS)
        if held and own.allowed > own.total - held:
            share = floor(1000 * (own.total - own.rest("low") + own.charge("low")) / own.base) / 1000
            return (Refusal("vLLM starts only if its share of memory is free",
                            f"{units.size(own.total - held)} of {units.size(own.total)} are free, other processes hold "
                            f"{units.size(held)}: --{own.share} {own.factor} asks for {units.size(own.allowed)}",
                            f"end them, or --{own.share} {share}"), (Setting(own.share, share),))
    return None


def _reason(part: Part, request: int) -> str:
    flag = next((f"--{setting.name} {setting.value}" for setting in part.budget.settings
                 if setting.name == part.budget.share), "the engine")
    pool = part.pool()
    what = f"{units.size(part.weight_bytes)} of weights on a GPU of stage {part.number}"
    allowed = f"the {units.size(part.budget.room())} that {flag} leaves of {units.size(part.budget.total)}"
    if pool <= 0:
        return f"{what} exceed {allowed}"
    need = sum(cache.request_bytes(request) for cache in part.caches)
    return f"{what} leave {units.size(pool)} of {allowed}: a request of {request} tokens needs {units.size(need)}"


def _nearest(case: Case, part: Part, found: Fit, request: int) -> tuple[tuple[Setting, ...], str]:
    """The change that asks least: the engine's share, an fp8 cache, shorter requests; else how much is missing."""
    own = part.budget
    need = pools.need(case.engine, part.caches, request)
    most = min(MOST_SHARE, (own.total - own.rest("low") + own.charge("low")) / own.base) if own.share else own.factor
    if own.share:
        share = ceil(1000 * (part.weight_bytes + own.charge() + need) / own.base) / 1000
        if own.factor < share <= most:
            setting = Setting(own.share, share)
            return (setting,), f"--{setting.name} {share}"
    sixteen = memory.kv_value_bytes(case.architecture, case.engine, case.settings) == 2
    if sixteen and case.engine in FP8_FLAG and part.pool() > need / 2:
        setting = FP8_FLAG[case.engine]
        return (setting,), f"--{setting.name} {setting.value}"
    if found.longest >= 256:
        return (), f"requests of at most {found.longest} tokens"
    room = max(1.0, most * own.base - own.charge())
    return (), f"{ceil((part.weight_bytes + need) * case.layout.tp * case.layout.pp / room)} such GPUs or more"
