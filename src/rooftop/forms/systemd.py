"""A systemd service unit whose ExecStart runs an engine, in a container or not."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rooftop.domain.form import Deployment, Form
from rooftop.forms._reading import Reading, Slot, Variable, choose, container, of_container, runs, within
from rooftop.forms._text import View, Word, whole
from rooftop.forms._words import commands
from rooftop.forms._writing import describe, rewrite


@dataclass(frozen=True, slots=True)
class _Line:
    """One assignment of the unit: section, key, the value as it reads, and its stretch of the source."""

    section: str
    key: str
    value: View
    start: int
    end: int


class Systemd:
    """`ExecStart=` with its `Environment=`; sections, order, comments and all other keys are kept."""

    name = "systemd"

    def reads(self, text: str) -> bool:
        """Whether the text is a unit with a [Service] that starts something."""
        return bool(re.search(r"^\[Service\]\s*$", text, re.M) and re.search(r"^ExecStart\s*=", text, re.M))

    def read(self, text: str, part: str = "") -> Deployment:
        """The engine that the unit starts; `part` is the line of its ExecStart."""
        return describe(self.name, text, part, choose(_readings(text), part, "ExecStart"))

    def write(self, deployment: Deployment) -> str:
        """The unit with the engine's command and environment changed."""
        text, part = deployment.text, deployment.part
        reading = choose(_readings(text), part, "ExecStart")
        return rewrite(text, reading, deployment, lambda new: self.read(new, part))


def _lines(text: str) -> Iterator[_Line]:
    """The unit's assignments; a backslash joins lines, comment lines between them are left out."""
    section, at = "", 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        line = text[at:end]
        if (head := re.match(r"\[(.+)\]\s*$", line)) is not None:
            section = head[1]
        elif (pair := re.match(r"([A-Za-z]\w*)\s*=[ \t]*", line)) is not None:
            view, begin = whole(text, at + pair.end(), end), at
            while view.text.rstrip("\n").endswith("\\") and end < len(text):
                at, end = end, text.find("\n", end) + 1 or len(text)
                if not re.match(r"\s*[#;]", text[at:end]):
                    view = _joined(view, whole(text, at, end))
            yield _Line(section, pair[1], view, begin, end)
        at = end


def _joined(first: View, second: View) -> View:
    return View(first.text + second.text, first.starts + second.starts, first.ends + second.ends)


def _readings(text: str) -> list[tuple[str, Reading]]:
    found: list[tuple[str, Reading]] = []
    lines = [line for line in _lines(text) if line.section == "Service"]
    variables = tuple(one for line in lines if line.key == "Environment" for one in _environment(line))
    files = [line.value.text.strip() for line in lines if line.key == "EnvironmentFile"]
    kept = tuple(dict.fromkeys(line.key for line in _lines(text) if line.key not in ("ExecStart", "Environment")))
    for line in lines:
        if line.key != "ExecStart":
            continue
        for command in commands(line.value, "systemd"):
            reading = _engine(command, text)
            if reading is None:
                continue
            where = next((one.end for one in reversed(lines) if one.key == "Environment"), line.start)
            like = Word("", "", 0, 0, "systemd", line.value)
            boxed = reading.slot is not None
            inner = {one.name for one in reading.variables}
            outer = () if boxed else tuple(one for one in variables if one.name not in inner)
            reading = replace(
                reading, variables=(*outer, *reading.variables), kept=(*kept, *reading.kept),
                slot=reading.slot or Slot(where, "Environment={pair}\n", like),
                outside=(*((one.name, one.value) for one in variables if one.value is not None), *reading.outside),
                notes=(*reading.notes, *(f"variables in a file are not read: {file}" for file in files)))
            found.append((str(text.count("\n", 0, line.start) + 1), reading))
    return found


def _engine(command: tuple[Word, ...], text: str) -> Reading | None:
    for words in [command] if container(command) else within(command) or []:
        if container(words):
            return of_container(words, text)
    run = next(runs([command]), None)
    if run is None:
        return None
    return Reading(run.engine, run.program, run.words, run.program[-1], run.variables, outside=run.outside)


def _environment(line: _Line) -> Iterator[Variable]:
    words = [word for command in commands(line.value, "systemd") for word in command]
    for word in words:
        name, sign, value = word.value.partition("=")
        if sign:
            alone = (line.start, line.end) if len(words) == 1 else (word.start, word.end)
            yield Variable(name, value.replace("%%", "%"), word, f"{name}=", alone)


FORM: Form = Systemd()
