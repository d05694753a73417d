"""What SGLang says of its CUDA graphs: announced, captured, given up (0.4 to 0.5.23)."""

import re

from rooftop.domain.launch import Level
from rooftop.engines._lines import Line, Notes, number, word

_BEGIN = re.compile(
    r"Capture (?:(?P<role>target|draft) )?(?P<phase>decode|verify|prefill|extend|piecewise)? ?"
    r"(?P<kind>cuda|CUDA|cpu|CPU|npu|NPU|xpu|XPU|musa) ?[Gg]raph (?:\([^)]*\) )?begin")
_END = re.compile(_BEGIN.pattern.removesuffix("begin") + r"end\b")
_OLD_DRAFT = re.compile(r"Capture (?:draft extend|draft|Frozen-KV MTP draft) cuda graph (?P<edge>begin|end)")
_BACKEND = re.compile(r"\bbackend=(?:Backend\.)?'?(?P<name>\w+)'?")
_SIZES = re.compile(r"\b(?P<what>bs|num_tokens)(?:=| )\[(?P<list>[\d, ]*)\]")
_ANNOUNCED = re.compile(r"Capture cuda graph (?:bs|num tokens) \[[\d, ]+\]")
_ELAPSED = re.compile(r"(?:elapsed=|Time elapsed: )(?P<s>\d[\d.]*?)\.? ?s\b")
_USED = re.compile(r"mem usage=(?P<gib>-?\d[\d.]*\d) GB")
_BAR = re.compile(r"(?P<what>Capturing batches|Capturing num tokens|Capturing)?[^%|]*?\b(?P<share>\d+)%\|[^|]*\| *"
                  r"(?P<done>\d+)/(?P<all>\d+)\b")
_BREAKABLE = re.compile(r"(?P<mode>Breakable|Full prefill) CUDA graph is incompatible with (?P<part>.+?);")
_BY_DEFAULT = re.compile(r"Disabling (?P<mode>breakable )?prefill CUDA graph (?:\((?P<name>\w+)\) )?by default for "
                         r"(?:the )?(?P<part>.+?)(?: \(|\.| on the (?P<backend>\w+) attention backend|$)")
_PREFILL_OFF = re.compile(r"Disable (?:prefill|piecewise) CUDA graph (?:capture )?(?:because|for|due to)")
_OFF = re.compile(r"Cuda graph is disabled (?:because|for)|Cuda graph and server warmup are disabled|"
                  r"and cuda graphs are disabled because")

MODES = {"full": "full", "breakable": "breakable", "tc_piecewise": "piecewise", "piecewise": "piecewise",
         "disabled": "off"}


class Graphs:
    """Reads graph lines in their order and notes what they prove; a capture is proven by its end line."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._announced: dict[str, tuple[int, ...]] = {}
        self._backends: dict[str, str] = {}
        self._role = ""

    def read(self, line: Line) -> None:
        """Read one line."""
        body = line.body
        if "raph" in body or "Captur" in body:
            draft = _OLD_DRAFT.search(body)
            begin, end = _BEGIN.search(body), _END.search(body)
            if draft:
                self._draft(line, draft["edge"] == "end")
            elif begin and begin["kind"].lower() != "cpu":
                self._begin(line, begin["role"] or "", begin["phase"] or "")
            elif end and end["kind"].lower() != "cpu":
                self._end(line, end["role"] or "", end["phase"] or "")
            elif _ANNOUNCED.search(body):
                self._announce("prefill" if "num tokens" in body else "decode", line)
            else:
                self._give_up(line)
        if "%|" in body:
            self._bars(line)

    def _begin(self, line: Line, role: str, phase: str) -> None:
        if role == "draft":
            self._draft(line, ended=False)
            return
        part = "prefill" if phase in ("prefill", "piecewise") else "decode"
        self._role = part
        backend = _BACKEND.search(line.body)
        mode = MODES.get(backend["name"].lower()) if backend else "piecewise" if phase == "piecewise" else None
        if mode:
            self._backends[part] = mode
            self._notes.add(f"graphs.{part}.mode", mode, "resolved", line)
        if _SIZES.search(line.body):
            self._announce(part, line)
        if phase == "verify":
            self._notes.add("spec.enabled", True, "resolved", line)

    def _announce(self, part: str, line: Line) -> None:
        sizes = _sizes(line.body)
        if sizes:
            self._announced[part] = sizes
            self._role = part
            self._note_sizes(part, sizes, "resolved", line)

    def _note_sizes(self, part: str, sizes: tuple[int, ...], level: Level, line: Line) -> None:
        self._notes.add(f"graphs.{part}.sizes_count", len(sizes), level, line)
        if part == "decode":
            self._notes.add("graphs.decode.max_batch", max(sizes), level, line)

    def _end(self, line: Line, role: str, phase: str) -> None:
        if role == "draft":
            self._draft(line, ended=True)
            return
        part = "prefill" if phase in ("prefill", "piecewise") else "decode"
        self._role = ""
        by_name = "piecewise" if phase == "piecewise" else "full" if part == "decode" else None
        mode = self._backends.get(part) or by_name
        self._notes.add(f"graphs.{part}.mode", mode, "built", line)
        sizes = _sizes(line.body) or self._announced.get(part, ())
        if sizes:
            self._note_sizes(part, sizes, "built", line)
        if part == "decode":
            elapsed, used = _ELAPSED.search(line.body), _USED.search(line.body)
            self._notes.add("startup.graphs_s", number(elapsed["s"]) if elapsed else None, "built", line)
            self._notes.add("graphs.memory_gib", number(used["gib"]) if used else None, "built", line)
        if phase == "verify":
            self._notes.add("spec.enabled", True, "built", line)

    def _draft(self, line: Line, ended: bool) -> None:
        self._role = "" if ended else "draft"
        self._notes.add("spec.enabled", True, "built" if ended else "resolved", line)
        elapsed = _ELAPSED.search(line.body) if ended else None
        self._notes.add("startup.draft_graphs_s", number(elapsed["s"]) if elapsed else None, "built", line)

    def _give_up(self, line: Line) -> None:
        body = line.body
        refused, default = _BREAKABLE.search(body), _BY_DEFAULT.search(body)
        if refused:
            wanted = "breakable" if refused["mode"] == "Breakable" else "full"
            self._refuse(wanted, refused["part"], line)
        elif default:
            self._refuse("breakable" if default["mode"] else MODES.get(default["name"] or "", ""),
                         default["backend"] or default["part"], line)
        elif _PREFILL_OFF.search(body):
            self._notes.add("graphs.prefill.mode", "off", "built", line)
        elif _OFF.search(body):
            self._notes.add("graphs.decode.mode", "off", "resolved", line, supersedes=True)
            self._notes.add("graphs.prefill.mode", "off", "resolved", line, supersedes=True)

    def _refuse(self, wanted: str, part: str, line: Line) -> None:
        self._notes.add("graphs.refused_mode", wanted or None, "asked", line)
        self._notes.add("graphs.refused_by", word(part), "resolved", line)
        self._notes.add("graphs.prefill.mode", "off", "resolved", line, supersedes=True)

    def _bars(self, line: Line) -> None:
        """A bar of the target's capture: its total is announced, and built once it is full."""
        for bar in _BAR.finditer(line.body):
            part = "prefill" if bar["what"] == "Capturing num tokens" else "decode"
            loads = bar["what"] is None and (self._role != "decode" or re.match(r"\s*[A-Za-z[]", line.body))
            if self._role != "draft" and not loads:
                full = bar["share"] == "100" and bar["done"] == bar["all"]
                self._notes.add(f"graphs.{part}.sizes_count", int(bar["all"]), "built" if full else "resolved", line)


def _sizes(body: str) -> tuple[int, ...]:
    found = _SIZES.search(body) or re.search(r"graph (?:bs|num tokens) \[(?P<list>[\d, ]*)\]", body)
    return tuple(int(size) for size in re.findall(r"\d+", found["list"])) if found else ()
