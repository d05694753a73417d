"""SGLang: its command, its refusals, what must hold, and the reading of its words (0.4 to 0.5.23)."""

from collections.abc import Iterator, Sequence

from rooftop.domain.engine import Command, Engine, Pages, Program, Reading, Refusal, Seat
from rooftop.domain.launch import Evidence, Fact, Fault
from rooftop.domain.layout import Layout
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.domain.vocabulary import strongest
from rooftop.engines import _sglang_args, _sglang_faults, _sglang_pages, _sglang_rules
from rooftop.engines._lines import Line, Notes
from rooftop.engines._nccl import Nccl
from rooftop.engines._options import Options, for_version, number, version_of
from rooftop.engines._sglang_graphs import Graphs
from rooftop.engines._sglang_layout import Ranks
from rooftop.engines._sglang_lines import SHAPES, Memory, parse
from rooftop.engines._sglang_steps import Steps
from rooftop.engines._wrapping import tells


class Reader:
    """SGLang's logs and pages, read by pure functions."""

    def read_log(self, lines: Sequence[str]) -> tuple[Evidence, ...]:
        """All facts that the log proves, each with its line."""
        return _read(parse(lines))

    def read_info(self, path: str, text: str) -> tuple[Evidence, ...]:
        """All facts that the page at `path` proves."""
        return _sglang_pages.read_info(path, text)

    def read_metrics(self, text: str) -> tuple[Reading, ...]:
        """The live series of `/metrics`."""
        return _sglang_pages.read_metrics(text)

    def fault(self, lines: Sequence[str], exit_code: int | None) -> Fault | None:
        """What stopped it or holds it back; `vocabulary.stops(kind)` tells the two apart."""
        parsed = parse(lines)
        return _sglang_faults.diagnose(parsed, strongest(_read(parsed)), exit_code)


def _read(lines: Sequence[Line]) -> tuple[Evidence, ...]:
    notes = Notes("log")
    ranks, graphs, steps, memory, nccl = Ranks(notes), Graphs(notes), Steps(notes), Memory(notes), Nccl(notes)
    for line in lines:
        if line.process or tells(line.body):
            ranks.read(line)
            nccl.read(line)
        if not tells(line.body):
            continue
        settings = _sglang_args.dump(line.body)
        if settings is not None:
            _sglang_args.note_settings(notes, settings, "resolved", line)
            continue
        typed = _sglang_args.command_line(line.body) if "sglang" in line.body else None
        if typed:
            _sglang_args.note_settings(notes, typed, "asked", line)
        elif not (" batch" in line.body and steps.read(line)):
            notes.read(line, SHAPES)
            graphs.read(line)
            memory.read(line)
    for reader in (ranks, steps, memory, nccl):
        reader.close()
    _sglang_pages.read_pasted(lines, notes)
    return notes.evidence()


class Sglang:
    """The engine SGLang, started as `sglang serve` or `python -m sglang.launch_server`."""

    name = "sglang"
    routes_dp = True
    programs = (Program("sglang", ("{python}", "-m", "sglang.launch_server"), module="sglang",
                        install="pip install sglang"),)
    pages = Pages(ready="/health", metrics="/metrics", info=("/server_info", "/v1/models", "/metrics"))
    witness = Reader()

    def command(self, plan: Plan, seat: Seat) -> Command:
        """The launch command in the options of the plan's version, the newest known where the plan names none."""
        options = for_version("sglang", version_of(plan))
        verb = ("serve",) if seat.program[-1].rsplit("/", 1)[-1] == "sglang" else ()
        words = [*seat.program, *verb, "--model-path", plan.model.path or plan.model.name,
                 "--served-model-name", plan.model.name, "--host", seat.host, "--port", str(seat.port)]
        words += _layout(plan.layout or Layout(), options)
        for setting in plan.settings:
            words += _option(setting, options)
        if plan.setting("enable-metrics") is None:
            words.append("--enable-metrics")
        return Command(tuple(words), tuple((one.name, _value(one.value)) for one in plan.environment))

    def refuses(self, plan: Plan) -> Refusal | None:
        """SGLang's rules that the plan alone can break, in the version that it names (the newest known for none)."""
        return next(_sglang_rules.refusals(plan), None)

    def asks(self, plan: Plan) -> tuple[tuple[str, Fact], ...]:
        """The layout, and every setting that the engine can be held to."""
        return tuple(dict(_asks(plan)).items())

    def phase(self, line: str) -> str | None:
        """The start-up phase that a log line begins."""
        return next((name for part in parse((line,)) if (name := _sglang_faults.phase(part.body))), None)


def _layout(layout: Layout, options: Options) -> list[str]:
    """Parallel sizes above 1.  Until 0.5.21 attention replicas were counted by --dp-size; before 0.5.2 ep was tp."""
    words = []
    for name, size in (("tp-size", layout.tp), ("pp-size", layout.pp), ("dp-size", layout.dp)):
        if size > 1:
            words += [f"--{name}", str(size)]
    if layout.attention_dp > 1:
        words += (["--attn-dp-size", str(layout.attention_dp)] if options.has("attn-dp-size")
                  else ["--dp-size", str(layout.attention_dp), "--enable-dp-attention"])
    if layout.ep > 1:
        words += ["--ep-size", str(layout.ep)]
        if number(options.version) < number("0.5.2"):
            words.append("--enable-ep-moe")
    if layout.dcp > 1:
        words += ["--dcp-size", str(layout.dcp)]
    return words


def _option(setting: Setting, options: Options) -> list[str]:
    """A setting as this version spells it: in full, a switch without value, a list word by word.

    `disable-cuda-graph` becomes what replaced it where that exists.
    """
    known = options.find(setting.name.lstrip("-"))
    name, kind = (known.name, known.kind) if known else (setting.name.lstrip("-"), "value")
    if name == "disable-cuda-graph" and options.has("cuda-graph-backend-decode"):
        return (["--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"]
                if setting.value in (True, "true", "True") else [])
    if kind == "pair" and setting.value in (False, "false", "False"):
        return [f"--no-{name}"]
    if kind in ("switch", "pair"):
        return [f"--{name}"] if setting.value not in (False, "false", "False") else []
    if kind == "values":
        return [f"--{name}", *str(setting.value).replace(",", " ").split()]
    return [f"--{name}", str(setting.value)]


def _value(value: SettingValue) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _asks(plan: Plan) -> Iterator[tuple[str, Fact]]:
    layout = plan.layout
    if layout is not None:
        yield from (("layout.tp", layout.tp), ("layout.pp", layout.pp), ("layout.dp", layout.dp))
        for fact, size in (("layout.ep", layout.ep), ("layout.attention_dp", layout.attention_dp),
                           ("layout.dcp", layout.dcp)):
            if size > 1:
                yield fact, size
    settings = {_sglang_args.field_name(one.name): str(one.value) for one in plan.settings}
    groups = layout.attention_dp if layout else 1
    for fact, value in _sglang_args.facts(settings, "asked"):
        if fact in ("limits.chunk_tokens", "limits.max_running") and isinstance(value, int) and value > 0:
            yield fact, value // groups
        elif (fact, value) == ("spec.method", "nextn"):  # the engine itself calls it so
            yield fact, "eagle"
        elif fact != "kv.tokens" and (fact, value) != ("kv.dtype", "auto"):
            yield fact, value


ENGINE: Engine = Sglang()
