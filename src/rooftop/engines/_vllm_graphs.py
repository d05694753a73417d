"""What vLLM says of its CUDA graphs: wanted, given up, captured, replayed."""

import re

from rooftop.domain.launch import Level
from rooftop.engines._lines import Line, Notes, whole, word
from rooftop.engines._vllm_config import MODES, graph_mode
from rooftop.engines._vllm_lines import kernel

_REFUSED = re.compile(
    r"CUDAGraphMode\.(?P<wanted>\w+) is not supported with (?P<spec>spec-decode for attention backend )?(?P<part>\w+)"
    r".*?\(support: ?[^)]*\)(?:.*?setting cudagraph_mode=(?P<got>\w+))?")
_OVERRIDDEN = re.compile(
    r"[Oo]verriding cudagraph_mode(?: from)?(?: (?P<wanted>[A-Z_]+))? to (?P<got>[A-Z_]+)|"
    r"Cudagraph mode (?P<mode>\S+) (?:is not compatible|requires piecewise capture).*Overriding to (?P<then>[\w.]+\w)")
_BLAME = (
    (re.compile(r"KV connector (\S+) requires"), None), (re.compile(r"\((DCP|PCP)\) is enabled"), None),
    (re.compile(r"([Pp]ooling) models"), None), (re.compile(r"([Ee]ncoder-decoder) models"), None),
    (re.compile(r"not compatible with compilation mode ([\w.]+?)\. ?Over"), None),
    (re.compile(r"[Dd]ynamic (speculative) decoding"), "speculation"),
    (re.compile(r"(DeepEP)"), "deepep_high_throughput"), (re.compile(r"stock (torch\.compile)"), None))
_OFF = re.compile(
    r"Cudagraph is disabled under eager mode|Enforce eager set|Skipping CUDA graph capture|Disabling CUDA Graphs since|"
    r"CUDA graph is not supported (?:for|on) .*fallback to (?:the )?eager")
_BAR = re.compile(
    r"Capturing (?:CUDA graphs?|cudagraphs?)(?: shapes)?(?: \((?P<what>[^)]*)\))?:\s+(?P<share>\d+)%"
    r"\s*(?:\|[^|]*\|)?(?: *(?P<done>\d+)/(?P<all>\d+))?")
_PROFILE = re.compile(r"(?P<mode>PIECEWISE|FULL)=(?P<count>\d+)(?: \(largest=(?P<largest>\d+)\))?")
_OLD_CAPTURE = re.compile(r"Capturing (?:cudagraphs for decoding|the model for CUDA graphs)")
_CAPPED = re.compile(r"Capping cudagraph capture sizes from max \d+ to (?P<largest>\d+)")
_DRAFT = re.compile(r"Capturing model for .*speculator")
_TABLE_ROW = re.compile(r"^\|\s*\d+\s*\|\s*\d+\s*\|\s*\d+\s*\|\s*(?P<mode>\w+)\s*\|\s*(?P<count>\d+)\s*\|")


class Graphs:
    """Reads graph lines in their order and notes what they prove."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._draft = False
        self._finished: Line | None = None
        self._steps: dict[str, int] = {}
        self._table: Line | None = None

    def read(self, line: Line) -> None:
        """Read one line."""
        body = line.body
        refused = _REFUSED.search(body)
        if refused:
            self._refuse(line, refused)
        overridden = _OVERRIDDEN.search(body)
        if overridden:
            self._override(line, overridden)
        elif _OFF.search(body):
            self._resolve("none", line, supersedes="Enforce" not in body)
            if "DeepEP" in body:
                self._notes.add("graphs.refused_by", "deepep_high_throughput", "resolved", line)
        if "Profiling CUDA graph memory:" in body:
            self._profile(line)
        if _OLD_CAPTURE.search(body):
            self._notes.add("graphs.decode.mode", "full", "resolved", line)
        capped = _CAPPED.search(body)
        if capped:
            self._notes.add("graphs.decode.max_batch", int(capped["largest"]), "resolved", line, supersedes=True)
        if _DRAFT.search(body):
            self._draft = True
        for bar in _BAR.finditer(body):
            self._capture(line, bar["what"] or "", bar["share"] == "100" and bar["done"] == bar["all"], bar["all"])
        if "Graph capturing finished in" in body:
            self._finished, self._draft = line, False
        self._count(line)

    def _resolve(self, mode: str, line: Line, *, supersedes: bool) -> None:
        for fact, kind in zip(("graphs.decode.mode", "graphs.prefill.mode"), MODES[mode], strict=True):
            self._notes.add(fact, kind, "resolved", line, supersedes=supersedes)

    def _refuse(self, line: Line, found: re.Match[str]) -> None:
        wanted, part = found["wanted"].lower(), found["part"]
        if wanted in MODES and wanted != "none":
            self._notes.add("graphs.refused_mode", wanted, "asked", line)
        self._notes.add("graphs.refused_by", word(part), "resolved", line)
        if part.lower().endswith("backend"):
            self._notes.add("attention.backend", kernel(part), "resolved", line)
        if found["spec"]:
            self._notes.add("spec.enabled", True, "resolved", line)
        got = graph_mode(found["got"] or "")
        if got:
            self._resolve(got, line, supersedes=True)

    def _override(self, line: Line, found: re.Match[str]) -> None:
        wanted = graph_mode(found["wanted"] or found["mode"] or "")
        got = graph_mode(found["got"] or found["then"] or "")
        if wanted and wanted != "none":
            self._notes.add("graphs.refused_mode", wanted, "asked", line)
        for pattern, name in _BLAME:
            blamed = pattern.search(line.body)
            if blamed:
                self._notes.add("graphs.refused_by", name or word(blamed[1]), "resolved", line)
                break
        if got:
            self._resolve(got, line, supersedes=True)

    def _profile(self, line: Line) -> None:
        for found in _PROFILE.finditer(line.body):
            count, largest = int(found["count"]), whole(found["largest"] or "")
            part = "decode" if found["mode"] == "FULL" else "prefill"
            self._notes.add(f"graphs.{part}.mode", found["mode"].lower(), "resolved", line)
            self._notes.add(f"graphs.{part}.sizes_count", count, "resolved", line)
            if part == "decode":
                self._notes.add("graphs.decode.max_batch", largest, "resolved", line, supersedes=True)

    def _capture(self, line: Line, what: str, done: bool, total: str | None) -> None:
        """A progress bar: `(decode, FULL)`, `(mixed prefill-decode, PIECEWISE)`, `(FULL)`, without kind in old logs."""
        if self._draft:
            return
        level: Level = "built" if done else "resolved"
        mode = "full" if "FULL" in what else "piecewise" if "PIECEWISE" in what else None
        part = "prefill" if what.startswith("mixed") or what == "PIECEWISE" else "decode"
        self._notes.add(f"graphs.{part}.sizes_count", whole(total or ""), level, line)
        self._notes.add(f"graphs.{part}.mode", mode, level, line)

    def _count(self, line: Line) -> None:
        if "**CUDAGraph Stats:**" in line.body or "Unpadded Tokens" in line.body:
            self._steps, self._table = {}, line
        row = _TABLE_ROW.search(line.body)
        if row and self._table is not None:
            self._steps[row["mode"]] = self._steps.get(row["mode"], 0) + int(row["count"])
            self._table = line

    def close(self) -> None:
        """Note what the end of the capture proves of the mode that was resolved, and the table of steps."""
        for part in ("decode", "prefill"):
            fact = f"graphs.{part}.mode"
            resolved = self._notes.values(fact, "resolved")
            if self._finished and resolved and resolved[-1] != "off":
                self._notes.add(fact, resolved[-1], "built", self._finished)
        decode = self._notes.values("graphs.decode.mode", "resolved")
        prefill = self._notes.values("graphs.prefill.mode", "built")
        captured = self._notes.values("graphs.prefill.sizes_count", "built")
        if decode == ["piecewise"] and prefill == ["piecewise"] and captured and not self._finished:
            proof = next(said for said in self._notes.evidence() if said.fact == "graphs.prefill.mode"
                         and said.level == "built")
            self._notes.add("graphs.decode.mode", "piecewise", "built", Line(proof.line, proof.text, proof.text))
        total = sum(self._steps.values())
        if total and self._table:
            share = 1 - self._steps.get("NONE", 0) / total
            self._notes.add("graphs.decode.used_share", round(share, 4), "used", self._table)
