"""StepCost by arithmetic: bytes, operations, launches, collectives and host gaps of one step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil

from rooftop.domain.architecture import Architecture
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Gpu
from rooftop.domain.plan import Plan, SettingValue
from rooftop.domain.stepcost import Cause, Cost, Grid, Kernel, Ledger, Shape, Step, Term
from rooftop.errors import BadInput
from rooftop.perfmodel.collectives import Ring, ring
from rooftop.perfmodel.cuts import partition_of, ranks, settings_of, stages
from rooftop.perfmodel.efficiency import kernel, peak, weight_only
from rooftop.perfmodel.graphs import captured, padded
from rooftop.perfmodel.grids import grid_of, kernel_s
from rooftop.perfmodel.operations import Mixture, Product, Reading, Work, work

BESIDE = {"sglang": 1024, "vllm": 256, "trtllm": 256}
"""Tokens up to which an engine runs shared experts beside the routed ones in a second stream of a graph, on NVIDIA GPUs
(SGLang's forward_normal_dual_stream; vllm-project/vllm#26440, #28406, #30085; TensorRT-LLM taken as vLLM)."""
CACHE_FREE = 0.92
"""Share of bandwidth that a stream of bytes reaches (the ledger's cap on kernels)."""
MANY_ROWS = 64
BESIDE_SINCE = (0, 12)
"""The first vLLM with that stream (0.11.1; a version's third number is not looked at)."""
ASYNC_SINCE = (0, 14)
"""The first vLLM whose scheduler works ahead of the GPU by default."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """The cost of a step of one plan; make it with `roofline`.

    works: one rank's work by pipeline stage.  tensor, dcp, wide: all-reduces over the tp group, over the ranks of
    decode context parallelism, and over all ranks that share the experts.  sizes: batches whose decode is captured.
    kv_bytes: of one cached value.  host: which host gap of the ledger holds.  engine: whose kernels.  beside: tokens up
    to which the shared experts run in a stream of their own beside the routed ones.  slots: cohorts into which a
    pipeline's requests fall at most, 0 = one a stage.
    """

    architecture: Architecture
    layout: Layout
    gpu: Gpu
    ledger: Ledger
    works: tuple[Work, ...]
    tensor: Ring
    dcp: Ring
    wide: Ring
    sizes: tuple[int, ...]
    kv_bytes: float
    host: str
    engine: str = ""
    beside: int = 0
    slots: int = 0

    def cost(self, step: Step) -> Cost:
        """Seconds of one pass of a batch through all stages, by operation and cause.

        Each operation takes its kernel's base, counted as launch, and the longer of its bytes and its operations.
        Without graphs the step takes at least as long as the host needs to launch every kernel.
        """
        share = self._share(step)
        terms: list[Term] = []
        before = 0.0
        for number in range(len(self.works)):
            stage = list(self._stage(number, step, share))
            terms += [*stage, Term("host", "host", self._host_s(step, number, before))]
            before = sum(term.seconds for term in stage)
        if not self._captured(step):
            terms += self._launches(terms, step)
        return Cost(tuple(_merged(terms)))

    def _share(self, step: Step) -> tuple[int, int, int]:
        """(requests and tokens of one attention group, tokens that the experts of one group see together)."""
        groups = self.layout.dp * self.layout.attention_dp
        requests, tokens = ceil(step.requests / groups), ceil(step.tokens / groups)
        if self._captured(step):
            tokens = requests = padded(requests, self.sizes)
        together = self.layout.attention_dp * (self.layout.dp if self.wide.ranks > self.layout.tp else 1)
        return requests, tokens, tokens * together

    def _captured(self, step: Step) -> bool:
        """Whether a step runs as a graph: a decode of no more requests a group than the largest that was captured."""
        largest = self.sizes[-1] if self.sizes else 0
        return step.phase == "decode" and ceil(step.requests / (self.layout.dp * self.layout.attention_dp)) <= largest

    def _stage(self, number: int, step: Step, share: tuple[int, int, int]) -> Iterator[Term]:
        part = self.works[number]
        requests, tokens, together = share
        overlapped = self._captured(step) and bool(part.mixtures) and together <= self.beside
        for product in part.products:
            rows = requests if product.once else together if _feeds(product) else tokens
            hidden = overlapped and product.name.startswith("shared_experts")
            yield from (term for term in self._product(product, rows) if not (hidden and term.cause == "launch"))
        for mixture in part.mixtures:
            yield from self._mixture(mixture, together)
        for reading in part.readings:
            yield from self._reading(reading, step, requests, tokens)
        small = part.small - (part.beside if overlapped else 0)
        yield Term("small kernels", "launch", small * self.ledger.value("small_kernel_us") * 1e-6 * self._slow)
        yield from self._collectives(part, requests, tokens, together)

    def _product(self, product: Product, rows: int) -> Iterator[Term]:
        moved = product.bytes + 2.0 * rows * product.parameters ** 0.5 * 2
        yield from self._work(product.name, "gemm", product.form, product.layers, moved,
                              2.0 * product.parameters * rows)

    def _mixture(self, mixture: Mixture, tokens: int) -> Iterator[Term]:
        met, most = mixture.touched(tokens)
        flops = 2.0 * mixture.parameters * tokens * mixture.active / mixture.spread * most
        moved = met * mixture.bytes + 4.0 * tokens * self.architecture.hidden
        table = grid_of(self.ledger, self.gpu, self.engine, self.expert_shape(mixture)) if self.ledger.grids else None
        if table is not None and tokens <= table.points[-1][0]:
            yield from self._measured("experts", table, mixture.layers, moved, (tokens, 0.0))
        else:
            yield from self._work("experts", "moe", mixture.form, mixture.layers, moved, flops)

    def _reading(self, reading: Reading, step: Step, requests: int, tokens: int) -> Iterator[Term]:
        """Attention over the cache; context is the mean, half of a prefill's own tokens included."""
        kind, own = reading.kind, tokens / requests
        context = round(step.context + (own / 2 if step.phase == "prefill" else 1))
        attended = kind.attended_tokens(context)
        share = reading.heads / kind.heads
        dcp = self.layout.dcp if kind.kind in ("mla", "full") else 1
        flops = tokens * kind.flops(context, absorbed=step.phase == "decode") / len(kind.layers) * share
        if kind.kind == "linear":
            moved = 2 * requests * kind.state_values * share * 4.0
            yield from self._work("linear attention", "linear", "bf16", reading.layers, moved, flops, requests)
            return
        values = kind.kv_rank + kind.rope_dim if kind.kind == "mla" else kind.key_dim if kind.kind == "compressed" \
            else reading.kv_heads * (kind.key_dim + kind.value_dim)
        moved = requests * (attended * values * self.kv_bytes + kind.entries(context) * kind.index_bytes) / dcp
        form = "fp8" if self.kv_bytes < 2 else "bf16"
        name = "mla" if kind.kind == "mla" else "attention"
        if step.phase == "prefill":
            used = replace(self._kernel("attention", form), compute=self.ledger.value("prefill_attention"))
            yield from self._timed("attention", used, reading.layers, moved, flops, peak("bf16", self.gpu))
            return
        table = grid_of(self.ledger, self.gpu, self.engine, self.cache_shape(reading)) if self.ledger.grids else None
        if table is not None and kind.kind in ("mla", "full") and not kind.index_top:
            yield from self._measured("attention", table, reading.layers, moved, (requests, attended / dcp))
        else:
            yield from self._work("attention", name, form, reading.layers, moved, flops, requests)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """What a table of kernel times would be asked for, without repetition."""
        asked = [self.expert_shape(one) for part in self.works for one in part.mixtures]
        asked += [self.cache_shape(one) for part in self.works for one in part.readings
                  if one.kind.kind in ("mla", "full")]
        return tuple(dict.fromkeys(asked))

    def expert_shape(self, mixture: Mixture) -> Shape:
        """The shape of a rank's experts."""
        wide = self.layout.tp * (self.layout.dp if self.wide.ranks > self.layout.tp else 1) // mixture.spread
        width = round(mixture.parameters * wide / (3 * self.architecture.hidden))
        return Shape("moe", mixture.form, (self.architecture.hidden, width, mixture.count, mixture.active, wide,
                                           mixture.spread))

    def cache_shape(self, reading: Reading) -> Shape:
        """The shape of a rank's reading of its cache."""
        form = "fp8" if self.kv_bytes < 2 else "bf16"
        if reading.kind.kind == "mla":
            return Shape("mla", form, (reading.heads * self.layout.dcp,))
        return Shape("attention", form, (reading.heads * self.layout.dcp, reading.kv_heads, reading.kind.key_dim))

    def _measured(self, name: str, table: Grid, layers: int, moved: float, at: tuple[float, float]
                  ) -> Iterator[Term]:
        """A kernel as it was timed, never faster than its bytes come from memory: what was timed may lie in a cache.

        What exceeds its bytes' time counts as launch, as compute where there are many rows.
        """
        memory = moved / (CACHE_FREE * (self.gpu.memory_bytes_per_s or 1.0))
        whole = max(memory, kernel_s(table, *at))
        yield Term(name, "memory", layers * memory)
        yield Term(name, "launch" if at[0] <= MANY_ROWS else "compute", layers * (whole - memory))

    def _work(self, name: str, operation: str, form: str, layers: int, moved: float, flops: float,
              batch: int = 1) -> Iterator[Term]:
        used = self._kernel(operation, form)
        attends = operation in ("attention", "mla")
        if attends:
            used = replace(used, memory=used.memory * batch / (batch + used.fill))
        rate = peak("bf16" if attends or operation == "linear" or weight_only(form, self.gpu) else form, self.gpu)
        yield from self._timed(name, used, layers, moved, flops, rate)

    def _timed(self, name: str, used: Kernel, layers: int, moved: float, flops: float, rate: float | None
               ) -> Iterator[Term]:
        bandwidth = self.gpu.memory_bytes_per_s or 0.0
        memory = moved / (used.memory * bandwidth)
        compute = flops / (used.compute * rate) if rate else 0.0
        yield Term(name, "launch", layers * used.base_s * self.ledger.value("kernel_base") * self._slow)
        yield Term(name, "memory" if memory >= compute else "compute", layers * max(memory, compute))

    @property
    def _slow(self) -> float:
        """What a kernel's fixed time is multiplied by on GPUs whose kernels no table timed."""
        return 1.0 if self.gpu.vendor == "nvidia" else self.ledger.value("other_vendor_base")

    def _kernel(self, operation: str, form: str) -> Kernel:
        return kernel(self.ledger, self.gpu, operation, form, self.engine)

    def _collectives(self, part: Work, requests: int, tokens: int, together: int) -> Iterator[Term]:
        """Two all-reduces a layer and one for the embedding; logits gathered; context shares exchanged; a hop a stage.

        With attention groups or replicas that share experts, the second all-reduce carries the tokens of all of them
        and another one brings them together before (engine-facts 5.1 and 5.2).
        """
        width, skew = 2.0 * self.architecture.hidden, self.ledger.value("allreduce_skew_us") * 1e-6
        calls: list[tuple[str, Ring, float, float]] = []
        if self.layout.tp > self.layout.attention_dp:
            calls.append(("all-reduce", self.tensor, tokens * width, part.layers + part.first))
        if together > tokens:
            calls.append(("experts' exchange", self.wide, together * width, 2 * part.expert_layers))
            calls.append(("all-reduce", self.tensor, together * width, 2 * (part.layers - part.expert_layers)))
        else:
            calls.append(("all-reduce", self.tensor, tokens * width, part.layers))
        if part.norm_sums:
            calls.append(("sum of norms", self.tensor, 8.0 * tokens, part.norm_sums))
        if part.last:
            calls.append(("logits", self.tensor, requests * self.architecture.vocab * 2.0, 0.5))
        for name, group, size, count in calls:
            if group.ranks > 1 and count:
                latency, wire = group.time(size)
                yield Term(name, "link latency", count * (latency + skew))
                yield Term(name, "link bandwidth", count * wire)
        if self.dcp.ranks > 1:
            heads = max(reading.heads for reading in part.readings)
            latency, wire = self.dcp.time(tokens * heads * self.layout.dcp * 576 * 2.0)
            yield Term("context exchange", "link latency", part.layers * 2 * (latency + skew))
            yield Term("context exchange", "link bandwidth", part.layers * wire)
        if not part.first:
            rate = self._hop_bytes_per_s()
            yield Term("stage hop", "link bandwidth", 2.0 * tokens * width / rate)
            yield Term("stage hop", "link latency", self.ledger.value("stage_hop_us") * 1e-6)

    def _hop_bytes_per_s(self) -> float:
        slot = self.gpu.slot
        return self.gpu.fabric_bytes_per_s or (slot.bytes_per_s if slot else None) or 20e9

    def _host_s(self, step: Step, stage: int, before: float) -> float:
        """The gap between steps: a fixed part and one for each request.

        A further stage schedules while the GPU of the one before it works, `before` seconds: what is longer shows
        (engine-facts 4.3: requests are passed on and batches made before the hidden states come).
        """
        fixed = self.ledger.value(f"host_{self.host}_us") * 1e-6
        each = self.ledger.value("host_request_us") * 1e-6 * step.requests / self.layout.dp
        return fixed + each if stage == 0 else max(0.0, fixed - before)

    def _launches(self, terms: list[Term], step: Step) -> list[Term]:
        """What the host needs beyond the GPU's time to launch every kernel of a step one by one."""
        collectives = 2 * self.architecture.layers if self.layout.tp > 1 else 0
        count = sum(part.kernels for part in self.works) + collectives
        graphs = self.sizes and step.phase == "prefill"
        each = self.ledger.value("prefill_launch_us" if graphs else "eager_launch_us") * 1e-6
        busy = sum(term.seconds for term in terms if term.cause != "host")
        late = count * each - busy
        return [Term("launches", "launch", late)] if late > 0 and step.tokens else []

    def limit(self, step: Step) -> float:
        """Seconds below which no engine can go: bytes over data-sheet bandwidth or operations over data-sheet rate."""
        bandwidth = self.gpu.memory_bytes_per_s or 1.0
        rate = peak("bf16", self.gpu) or float("inf")
        requests, tokens, together = self._share(step)
        moved = flops = 0.0
        for part in self.works:
            moved += sum(one.layers * one.bytes for one in part.products)
            flops += sum(2.0 * one.layers * one.parameters * tokens for one in part.products)
            for mixture in part.mixtures:
                moved += mixture.layers * mixture.touched(together)[0] * mixture.bytes
                flops += 2.0 * mixture.layers * mixture.parameters * together * mixture.active / mixture.spread
            for reading in part.readings:
                share = reading.layers / len(reading.kind.layers) / self.layout.dcp
                whole = reading.kind.kv_bytes(round(step.context), self.kv_bytes) * requests * share
                moved += whole if reading.kind.kind == "mla" else whole * reading.kv_heads / reading.kind.kv_heads
        return max(moved / bandwidth, flops / rate)


def roofline(plan: Plan, architecture: Architecture, ledger: Ledger) -> Roofline:
    """The step cost of a plan.

    Raises BadInput where the plan names no machine with GPUs or the GPU's bandwidth is not known.
    """
    layout, engine, machine = plan.layout or Layout(), plan.engine or "vllm", plan.machine
    if machine is None or not machine.gpus or machine.gpus[0].memory_bytes_per_s is None:
        raise BadInput("speed is predicted for GPUs with a data sheet only", where=machine.name if machine else "plan",
                       remedy="name a machine of the catalog")
    settings = {**{one.name: one.value for one in plan.environment}, **settings_of(plan)}
    cut = ranks(engine if engine in ("sglang", "llamacpp") else "vllm", layout, settings)
    parts = stages(engine, architecture.layers, layout.pp, partition_of(plan))
    works = tuple(work(architecture, cut, number, layout.pp, layers) for number, layers in enumerate(parts))
    def group(size: int, name: str = engine) -> Ring:
        return ring(ledger, machine, range(min(size, machine.world)), name, settings)
    shared = architecture.experts is not None and layout.dp > 1 and engine == "vllm"
    cached = str(settings.get("kv-cache-dtype") or architecture.kv_format or "auto")
    return Roofline(architecture, layout, machine.gpus[0], ledger, works, group(layout.tp), group(layout.dcp, ""),
                    group(layout.tp * layout.dp if shared else layout.tp), captured(plan, architecture, settings),
                    1.0 if cached.startswith(("fp8", "int8")) else 2.0, _host(plan, engine, layout, settings), engine,
                    _beside(plan, engine, machine.gpus[0]))


def _host(plan: Plan, engine: str, layout: Layout, settings: Mapping[str, SettingValue]) -> str:
    """Which gap holds: `ahead` where the scheduler works while the GPU runs, `vllm_sync` for vLLM before that."""
    if engine == "llamacpp":
        return "llamacpp"
    if layout.pp > 1 and engine == "sglang":
        return "behind"
    asked = str(settings.get("async-scheduling", "")).lower() == "true"
    if engine == "vllm" and not asked and plan.engine_version and _version(plan.engine_version) < ASYNC_SINCE:
        return "behind"
    return "ahead"


def _beside(plan: Plan, engine: str, gpu: Gpu) -> int:
    """Tokens up to which shared experts run beside the routed ones."""
    old = engine == "vllm" and plan.engine_version and _version(plan.engine_version) < BESIDE_SINCE
    return BESIDE.get(engine, 0) if gpu.vendor == "nvidia" and not old else 0


def _version(text: str) -> tuple[int, ...]:
    numbers = [part for part in text.lstrip("v").split(".") if part.isdigit()]
    return tuple(int(part) for part in numbers[:2]) or ASYNC_SINCE


def _feeds(product: Product) -> bool:
    """Whether a product works on the tokens of all attention groups together."""
    return product.name.startswith(("mlp", "shared_experts", "router"))


def _merged(terms: list[Term]) -> Iterator[Term]:
    sums: dict[tuple[str, Cause], float] = {}
    for term in terms:
        key = term.operation, term.cause
        sums[key] = sums.get(key, 0.0) + term.seconds
    yield from (Term(name, cause, seconds) for (name, cause), seconds in sums.items() if seconds)
