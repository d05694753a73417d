"""Rows of a table of public measurements as plans, loads and values, or the reason why not."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from likeness import like

from rooftop.catalog import gpus
from rooftop.catalog.machines import assumed
from rooftop.domain.architecture import Architecture, Matrix, NumberFormat
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Gpu, Group, Link, Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.errors import BadInput
from rooftop.models.quantization import FP8, MXFP4, NVFP4, fp8_blocks, int_groups
from rooftop.models.read import read_model
from rooftop.perfmodel.predict import spread_kind

OWN = Path(__file__).parent.parent / "tests" / "cases" / "configs"
COLUMNS = ("source_url", "hardware", "gpus", "interconnect", "model", "quant", "engine", "engine_version", "tp", "pp",
           "ep", "dp", "cuda_graphs", "other_flags", "input_len", "output_len", "concurrency", "metric", "value",
           "notes")
ENGINES = (("vllm", r"vllm"), ("sglang", r"sglang|\bsgl\b"), ("trtllm", r"tensorrt|trt-?_?llm"),
           ("llamacpp", r"llama[.\- ]?cpp|llama-(?:server|bench)|ollama"))
"""rooftop's word for an engine and how rows write it."""
NODE_GPUS = 8
LINEAR = ("attention", "mlp", "experts", "shared_experts", "linear", "indexer")
SPECULATES = re.compile(r"speculative|\bmtp\b|mtp\d|eagle|dflash|dspark|\bspec\b|nextn|medusa|draft|n-?gram", re.I)
PLAIN = re.compile(r"no[ -]mtp|mtp\s?0\b|mtp off", re.I)
DECODES = re.compile(r"decode|\btg ?\d+\b|generation (?:rate|speed)|eval rate", re.I)
"""Notes of rows whose tokens a second leave the prefill out."""
MOST_TOKENS, MOST_USERS, MOST_GPUS = 2**22, 2**17, 2**12
"""Numbers above are typing errors."""
ASSUMED_INPUT, ASSUMED_OUTPUT = 128, 256
"""Lengths for rows of a few users that do not state them: a step depends on them little."""


WORDS = ((r"nvfp4|\bfp4\b|w4a4", NVFP4), (r"mxfp4", MXFP4), (r"mxfp8", NumberFormat("mxfp8", 8, 1, 32)),
         (r"w4a8|w4afp8|int4|awq|gptq(?!.*(?:8-?bit|int8))|w4a16|auto-?round|4-?bit|bnb|nf4|hqq",
          int_groups(4, 128)),
         (r"fp8|float8|e4m3|e5m2", fp8_blocks(128, 128)), (r"int8|w8a8|w8a16|8-?bit", NumberFormat("int8", 8, 1, 0, 4)),
         (r"b?fp?16|bfloat16|float16|half|16-?bit|\bf32\b|fp32", NumberFormat("bf16", 16)))
"""How rows write number formats, the most telling words first."""


class Refused(Exception):  # noqa: N818
    """Why a row is not answered."""


@dataclass(frozen=True)
class Row:
    """One number: what was run, under which load, and what came out."""

    source: str
    title: str
    kind: str
    metric: str
    value: float
    plan: Plan
    architecture: Architecture
    quant: str
    users: int
    context: float
    input_tokens: int
    output_tokens: int
    rate: float | None
    slots: int | None
    burst: bool
    varied: bool

    @property
    def gpu(self) -> Gpu:
        return self.plan.machine.gpus[0] if self.plan.machine else Gpu("")

    @property
    def machine_key(self) -> tuple[str, ...]:
        machine = self.plan.machine.name if self.plan.machine else ""
        return (self.source, machine, self.architecture.name, self.quant, str(self.plan.engine), self.metric, self.kind)

    @property
    def load_key(self) -> tuple[object, ...]:
        """Everything but the layout: same source, machine, model, engine, settings and load."""
        return (*self.machine_key, self.plan.engine_version, self.users, self.input_tokens, self.output_tokens,
                self.rate, str(self.plan.settings), str(self.plan.environment))

    @property
    def spread_kind(self) -> str:
        """The ledger's word for rows of this kind."""
        kind = spread_kind(self.users, self.gpu, decodes=self.kind == "decode rate")
        return "few" if (kind, self.metric) == ("far", "TTFT") else kind

    @property
    def spread_metric(self) -> str:
        return {"tok/s": "rate", "TPOT": "tpot", "ITL": "tpot", "TTFT": "ttft"}[self.metric]

    @property
    def width(self) -> tuple[int, int]:
        layout = self.plan.layout or Layout()
        return layout.tp // layout.attention_dp // layout.ep, -layout.dcp


@dataclass
class Shapes:
    """The configurations of a folder, by model name and number format; rooftop's own where the folder has none."""

    folder: Path

    def __post_init__(self) -> None:
        self.files: dict[tuple[str, ...], list[Path]] = {}
        named = [(file.stem.partition("--")[2], file) for file in sorted(self.folder.glob("*.json"))]
        named += [(file.parent.name, file) for file in sorted(OWN.glob("*/config.json"))]
        for name, file in named:
            self.files.setdefault(tuple(words(name)), []).append(file)
        self.cache: dict[tuple[str, str], Architecture] = {}
        self.alike: set[str] = set()

    def find(self, model: str, quant: str) -> Architecture:
        if (model, quant) not in self.cache:
            self.cache[model, quant] = self._find(model, quant)
        return self.cache[model, quant]

    def _find(self, model: str, quant: str) -> Architecture:
        bare = re.sub(r"\(.*?\)", "", model).strip().rpartition("/")[2]
        files = self.files.get(tuple(words(bare)), [])
        if not files:
            raise Refused("no configuration of the model")
        form = wanted(quant)
        read, why = tried(files, lambda file: read_model(str(file)))
        if not read:
            read, _ = tried(files, like)
            self.alike.update([bare] if read else [])
        if not read:
            raise Refused(f"configuration cannot be read: {why[:60]}")
        same = [one for one in read if form is None or form.name.split()[0] in largest(one).name]
        if same:
            return same[0]
        return requantized(read[0], form, quant) if form else read[0]


def tried(files: list[Path], read: Callable[[Path], Architecture]) -> tuple[list[Architecture], str]:
    """What could be read of the files, and why the first could not that could not."""
    found, why = [], ""
    for file in files:
        try:
            found.append(read(file))
        except (BadInput, ValueError, OSError) as error:
            why = why or str(error)
    return found, why


def words(name: str) -> list[str]:
    """A model's name without what does not change its shape: quantization, tuning, date."""
    bare = re.sub(r"[-_ ]?(nvfp4|fp8|fp4|mxfp[48]|awq|gptq|int[48]|w\d+a\d+|bf16|[48]-?bit|bnb|gguf|exl\d|quantized"
                  r"|dynamic|kv|instruct|chat|it|thinking|base|exp|hf|\d{4}|v\d+\.\d+-hf)(?=[-_. ]|$)", "",
                  name.lower())
    parts = re.split(r"[-_ ]+", bare.removeprefix("meta-").removeprefix("nvidia-"))
    return [part.strip(".") for part in parts if part.strip(".")]


def wanted(quant: str) -> NumberFormat | None:
    """The format that a row's words ask of the large matrices; None = as the configuration has it."""
    text = re.sub(r"[_ ]", "-", quant.lower())
    if not text or re.search(r"native|^(?:none|default|auto|unquantized|original|-+)$", text):
        return None
    blocks = re.search(r"\bi?q(\d)(?:-|\b)|(\d)(?:\.\d)?[- ]?(?:bit|bpw)", text)
    for pattern, form in WORDS:
        if re.search(pattern, text):
            return form
    if blocks:
        bits = int(blocks[1] or blocks[2])
        return NumberFormat(f"int{bits} g32", bits, 1, 32, 2.0) if 2 <= bits <= 8 else None
    raise Refused(f"number format {quant!r}")


def largest(architecture: Architecture) -> NumberFormat:
    return max(architecture.matrices, key=lambda one: one.parameters).format


def requantized(architecture: Architecture, form: NumberFormat, quant: str) -> Architecture:
    """The shape with its linear layers in another format, as that format's usual checkpoints have it.

    fp8: all linear layers (a scale a tensor where the words say so).  nvfp4 and mxfp4: feed-forward only.  Four bits:
    all but linear attention and, beside it, shared experts, which the recipes for such models (Qwen3-Next, Qwen3.5)
    keep in 16 bits: llm-compressor's examples, Intel AutoRound's cards.
    """
    parts = ("mlp", "experts", "shared_experts") if form in (NVFP4, MXFP4) else LINEAR
    if form.bits <= 4 and any(matrix.part == "linear" for matrix in architecture.matrices):
        parts = tuple(part for part in parts if part not in ("linear", "shared_experts"))
    form = FP8 if "tensor" in quant else form

    def changed(matrix: Matrix) -> Matrix:
        linear = matrix.part in parts and matrix.cols > 1 and matrix.rows > 64
        return replace(matrix, format=form) if linear else matrix
    return replace(architecture, matrices=tuple(changed(matrix) for matrix in architecture.matrices))


def read_row(fields: dict[str, str], metric: str, shapes: Shapes) -> Row:
    """Raises Refused with the reason."""
    flags, notes = fields["other_flags"], fields["notes"]
    if SPECULATES.search(PLAIN.sub("", f"{flags} {fields['model']}")) or (
            "MTP on" in notes and not PLAIN.search(flags)):
        raise Refused("speculative decoding")
    value = _number(fields["value"])
    if value is None or value <= 0:
        raise Refused("no value")
    engine = next((name for name, pattern in ENGINES if re.search(pattern, fields["engine"], re.I)), None)
    if engine is None:
        raise Refused(f"engine {fields['engine'] or 'not stated'}")
    machine, layout = _place(fields)
    architecture = shapes.find(fields["model"], fields["quant"])
    layout = replace(layout, ep=1) if architecture.experts is None else layout
    settings, environment, slots = _settings(fields)
    users = _whole(fields["concurrency"])
    if not users:
        raise Refused("concurrency not stated")
    given_in, given_out = _whole(fields["input_len"]), _whole(fields["output_len"])
    if users > MOST_USERS or max(given_in or 0, given_out or 0) > MOST_TOKENS:
        raise Refused("concurrency or lengths beyond any server")
    decodes = metric == "tok/s" and given_in is not None and (
        re.search(r"rtx6kpro|club-3090", fields["source_url"]) is not None or DECODES.search(notes) is not None)
    kind = "decode rate" if decodes else "up to 8 users" if users <= 8 else "loaded"
    if kind == "loaded" and (not given_in or not given_out):
        raise Refused("lengths not stated")
    input_tokens, output_tokens = given_in or ASSUMED_INPUT, given_out or ASSUMED_OUTPUT
    context = (given_in or 0) + (given_out or 512) / 2 if decodes else input_tokens + output_tokens / 2
    found = re.search(r"[Rr]ate (\d+(?:\.\d+)?)|(\d+) ?RPS", notes + " " + flags) if not decodes else None
    rate = float(found[1] or found[2]) if found else None
    model = Model(fields["model"])
    plan = Plan(model, engine, layout, settings, environment, machine, engine_version=fields["engine_version"])
    title = (f"{machine.name} {fields['model'].rpartition('/')[2]} {fields['quant']} {engine} "
             f"{fields['engine_version']} {layout} C{users} {input_tokens}/{output_tokens} {flags[:60]} {notes[:20]}")
    return Row(source_of(fields["source_url"]), title, kind, metric, value, plan, architecture,
               fields["quant"], users, context, input_tokens, output_tokens, rate, slots,
               users > 8 and "no client cap" in notes, "random" not in notes)


def source_of(url: str) -> str:
    """Repository or site of a page: what leave-one-source-out leaves out."""
    place = re.sub(r"^https?://", "", url)
    parts = place.split("/")
    return "/".join(parts[:3]) if parts[0] in ("github.com", "huggingface.co") else parts[0]


def _place(fields: dict[str, str]) -> tuple[Machine, Layout]:
    sheet = _gpu(fields["hardware"])
    degrees = {key: _whole(fields[key]) for key in ("tp", "pp", "ep", "dp")}
    count = _whole(fields["gpus"])
    if count == 1:
        degrees = {key: value or 1 for key, value in degrees.items()}
    if not count or degrees["tp"] is None or count > MOST_GPUS:
        raise Refused("layout not stated")
    tp, pp, ep = (degrees[key] or 1 for key in ("tp", "pp", "ep"))
    dp = degrees["dp"] or (count // (tp * pp) if count % (tp * pp) == 0 else 1)
    attention_dp = 1
    if dp > 1 and tp * pp * dp > count and tp % dp == 0:
        attention_dp, dp = dp, 1
    dcp = re.search(r"(?:dcp|decode-context-parallel-size)[= ](\d+)", fields["other_flags"])
    try:
        layout = Layout(tp, pp, dp, ep, attention_dp, int(dcp[1]) if dcp else 1)
    except ValueError as error:
        raise Refused(f"layout: {error}"[:60]) from error
    if layout.ranks != count:
        raise Refused(f"layout of {layout.ranks} ranks on {count} GPUs")
    network = re.search(r"RoCE|inter-node|Ethernet|InfiniBand|QSFP", fields["interconnect"], re.I)
    racks = sheet.name in ("GB200", "GB300")
    nodes = count if network and sheet.name == "GB10" else 1 if racks else -(-count // NODE_GPUS)
    try:
        machine = assumed(sheet, count // nodes, nodes)
        bridged = sheet.fabric == "bridge" and re.search(r"NVLink", fields["interconnect"]) and not re.search(
            r"no NVLink|removed", fields["interconnect"] + fields["notes"])
        if bridged and count > 1:
            link = Link("nvlink", sheet.fabric_bytes_per_s(), assumed=True)
            machine = replace(machine, groups=(Group(tuple(range(count)), link),))
        return machine, layout
    except BadInput as error:
        raise Refused(f"machine: {error}"[:60]) from error


def _gpu(name: str) -> gpus.Sheet:
    """The sheet of a row's GPU; where its words leave several open, the most usual of them."""
    for words in (name, re.sub(r"\(.*?\)", "", name)):
        found = gpus.find(words) or next(iter(gpus.meant(words)), None)
        if found is not None:
            return found
    raise Refused(f"GPU {name.strip() or 'not stated'}")


def _settings(fields: dict[str, str]) -> tuple[tuple[Setting, ...], tuple[Setting, ...], int | None]:
    flags = fields["other_flags"]
    settings, environment = [], []
    if fields["cuda_graphs"] == "off" or re.search(r"enforce-eager|disable-cuda-graph(?!-pad)", flags):
        settings.append(Setting("enforce-eager", True))
    if re.search(r"kv(?:-cache-dtype)?[ =]fp8", flags):
        settings.append(Setting("kv-cache-dtype", "fp8"))
    elif re.search(r"kv bf16", flags):
        settings.append(Setting("kv-cache-dtype", "auto"))
    if "async-scheduling" in flags:
        settings.append(Setting("async-scheduling", True))
    if re.search(r"custom PCIe all-reduce|one-?shot|PCIE_ALLREDUCE=1|PCIe-IPC|custom AR;|stage1<=", flags, re.I):
        environment.append(Setting("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC", True))
    largest = re.search(r"cuda-?graph-max-bs(?:-decode)?[ =](\d+)", flags)
    if largest:
        settings.append(Setting("cuda-graph-max-bs-decode", int(largest[1])))
    slots = re.search(r"max-num-seqs[ =](\d+)|max-running-requests[ =](\d+)", flags)
    return tuple(settings), tuple(environment), int(slots[1] or slots[2]) if slots else None


def _number(text: str) -> float | None:
    """A finite number that is not negative."""
    try:
        number = float(text.replace(",", "").replace("~", ""))
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _whole(text: str) -> int | None:
    number = _number(text)
    return None if number is None else round(number)
