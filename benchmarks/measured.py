"""Rows of a table of public measurements as plans, loads and values, or the reason why not."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from rooftop.catalog import gpus
from rooftop.catalog.machines import assumed
from rooftop.domain.architecture import Architecture, Matrix, NumberFormat
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Group, Link, Machine
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.errors import BadInput
from rooftop.models.quantization import FP8, MXFP4, NVFP4, fp8_blocks, int_groups
from rooftop.models.read import read_model
from rooftop.perfmodel.predict import spread_kind

OWN = Path(__file__).parent.parent / "tests" / "cases" / "configs"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm", "llama.cpp": "llamacpp"}
SAME = {"h100": "H100 SXM", "h200": "H200 SXM", "h800": "H100 SXM", "a100": "A100 80GB SXM", "b200": "B200 SXM",
        "b300": "B300 SXM", "mi350x": "MI355X", "gb10": "GB10", "dgxspark": "GB10", "rtx3090": "RTX 3090",
        "rtx4090": "RTX 4090", "rtx5090": "RTX 5090", "rtxpro6000": "RTX PRO 6000 Blackwell Workstation"}
"""GPUs whose names begin so and that the catalog has under a longer or a near name (H800, MI350X: for decoding)."""
NODE_GPUS = 8
LINEAR = ("attention", "mlp", "experts", "shared_experts", "linear", "indexer")
SPECULATES = re.compile(r"speculative|\bmtp\b|mtp\d|eagle|dflash|dspark|\bspec\b|nextn|medusa", re.I)
PLAIN = re.compile(r"no[ -]mtp|mtp\s?0\b|mtp off", re.I)
ASSUMED_INPUT, ASSUMED_OUTPUT = 128, 256
"""Lengths for rows of a few users that do not state them: a step depends on them little."""


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
        return spread_kind(self.users, decodes=self.kind == "decode rate")

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
        read, why = [], ""
        for file in files:
            try:
                read.append(read_model(str(file)))
            except BadInput as error:
                why = str(error)
        if not read:
            raise Refused(f"configuration cannot be read: {why[:60]}")
        same = [one for one in read if form is None or form.name.split()[0] in largest(one).name]
        if same:
            return same[0]
        return requantized(read[0], form, quant) if form else read[0]


def words(name: str) -> list[str]:
    """A model's name without what does not change its shape: quantization, tuning, date."""
    bare = re.sub(r"[-_ ]?(nvfp4|fp8|mxfp4|awq|gptq|int4|int8|w4a16|bf16|instruct|chat|it|thinking|base"
                  r"|\d{4}|v\d+\.\d+-hf)(?=[-_ ]|$)", "", name.lower())
    return [word for word in re.split(r"[-_ ]+", bare.removeprefix("meta-").removeprefix("nvidia-"))
            if word]


def wanted(quant: str) -> NumberFormat | None:
    """The format that a row's words ask of the large matrices; None = as the configuration has it."""
    text = quant.lower()
    if "native" in text or not text:
        return None
    blocks = re.match(r"q(\d)_", text)
    if blocks:
        return NumberFormat(f"int{blocks[1]} g32", int(blocks[1]), 1, 32, 2.0)
    if "nvfp4" in text:
        return NVFP4
    if "mxfp4" in text:
        return MXFP4
    if "int4" in text or "awq" in text or "gptq" in text or "w4a16" in text:
        return int_groups(4, 128)
    if "int8" in text or "w8a8" in text:
        return NumberFormat("int8", 8, 1, 0, 4)
    if "fp8" in text:
        return fp8_blocks(128, 128)
    if "bf16" in text or "fp16" in text:
        return NumberFormat("bf16", 16)
    raise Refused(f"number format {quant!r}")


def largest(architecture: Architecture) -> NumberFormat:
    return max(architecture.matrices, key=lambda one: one.parameters).format


def requantized(architecture: Architecture, form: NumberFormat, quant: str) -> Architecture:
    """The shape with its linear layers in another format, as that format's usual checkpoints have it.

    fp8: all linear layers (a scale a tensor where the words say so).  nvfp4 and mxfp4: feed-forward only.
    """
    parts = ("mlp", "experts", "shared_experts") if form in (NVFP4, MXFP4) else LINEAR
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
    if not float(fields["value"] or 0) > 0:
        raise Refused("no value")
    engine = ENGINES.get(fields["engine"].lower())
    if engine is None:
        raise Refused(f"engine {fields['engine'] or 'not stated'}")
    machine, layout = _place(fields)
    architecture = shapes.find(fields["model"], fields["quant"])
    layout = replace(layout, ep=1) if architecture.experts is None else layout
    settings, environment, slots = _settings(fields)
    users = _whole(fields["concurrency"])
    if users is None:
        raise Refused("concurrency not stated")
    given_in, given_out = _whole(fields["input_len"]), _whole(fields["output_len"])
    decodes = metric == "tok/s" and given_in is not None and (
        re.search(r"rtx6kpro|club-3090", fields["source_url"]) is not None or "decode" in notes)
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
    return Row(source_of(fields["source_url"]), title, kind, metric, float(fields["value"]), plan, architecture,
               fields["quant"], users, context, input_tokens, output_tokens, rate, slots,
               users > 8 and "no client cap" in notes, "random" not in notes)


def source_of(url: str) -> str:
    """Repository or site of a page: what leave-one-source-out leaves out."""
    place = re.sub(r"^https?://", "", url)
    parts = place.split("/")
    return "/".join(parts[:3]) if parts[0] in ("github.com", "huggingface.co") else parts[0]


def _place(fields: dict[str, str]) -> tuple[Machine, Layout]:
    name = fields["hardware"].strip()
    bare = re.sub(r"\(.*?\)", "", name).strip()
    short = re.sub(r"[^a-z0-9]|nvidia|geforce|amd|instinct", "", bare.lower())
    sheet = gpus.find(name) or gpus.find(bare)
    if sheet is None:
        near = next((full for key, full in SAME.items() if short.startswith(key) and "excerpt" not in name), "")
        sheet = gpus.find(near) if near and " or " not in name and "class" not in name else None
    if sheet is None:
        raise Refused(f"GPU {name}")
    degrees = {key: _whole(fields[key]) for key in ("tp", "pp", "ep", "dp")}
    count = _whole(fields["gpus"])
    if count == 1:
        degrees = {key: value or 1 for key, value in degrees.items()}
    if count is None or degrees["tp"] is None:
        raise Refused("layout not stated")
    tp, pp, ep, dp = (degrees[key] or 1 for key in ("tp", "pp", "ep", "dp"))
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
    slots = re.search(r"max-num-seqs[ =](\d+)|max-running-requests[ =](\d+)", flags)
    return tuple(settings), tuple(environment), int(slots[1] or slots[2]) if slots else None


def _whole(text: str) -> int | None:
    try:
        return round(float(text))
    except (TypeError, ValueError):
        return None
