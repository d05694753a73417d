"""A reading as a deployment, and a changed deployment back into its text, word by word."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from rooftop.domain.form import Deployment
from rooftop.domain.model import Model
from rooftop.domain.plan import Setting, SettingValue
from rooftop.errors import BadInput
from rooftop.forms import _flags
from rooftop.forms._flags import Flag
from rooftop.forms._reading import Reading, Variable, version
from rooftop.forms._text import Edit, Word, spell, splice

_GAP = re.compile(r"(?:\s|\\\n)*")
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


def describe(form: str, text: str, part: str, reading: Reading) -> Deployment:
    """The deployment that a reading is: its plan, what is kept, what is secret, what is not known."""
    flags = _flags.read(reading.engine, reading.words, reading.known)
    told = _flags.settings(flags, reading.engine)
    hidden = [f"--{name}" for name, value in told.items() if _flags.secret(name, str(value))]
    hidden += [one.name for one in reading.variables if _flags.secret(one.name, one.value or "")]
    shown = {one.name: one.value for one in reading.variables if one.value is not None and one.name not in hidden}
    environment = tuple(Setting(name, value) for name, value in shown.items())
    gpus = _gpus(reading)
    plan, sizes, notes = _flags.plan(reading.engine, flags, environment, version(reading.image), gpus)
    sizes = tuple(name for name in sizes if name in told)
    if not plan.model.path and (path := shown.get("LLAMA_ARG_MODEL")):
        name = path.rsplit("/", 1)[-1].removesuffix(".gguf") if plan.model.name == "unknown" else plan.model.name
        plan, notes = replace(plan, model=Model(name, path)), tuple(note for note in notes if "no model" not in note)
    outside = [one.name for one in reading.variables if one.value is None and one.name not in hidden]
    if outside:
        notes = (*notes, f"set outside of this text: {', '.join(outside)}")
    port = told.get("port")
    return Deployment(
        form, text, replace(plan, title=reading.name, binary=_binary(reading)), part,
        tuple(Setting(name, value) for name, value in told.items() if f"--{name}" not in hidden),
        environment, tuple(dict.fromkeys(hidden)), reading.image, str(told.get("host", "")),
        port if isinstance(port, int) else _flags.dialect(reading.engine)["port"] if port is None else None,
        reading.published, reading.mounts, reading.kept, (*reading.notes, *notes), sizes, gpus)


def _binary(reading: Reading) -> str:
    """The user's own program where its path is told and nothing wraps it; "" inside a container."""
    first = reading.program[0].value if reading.program else ""
    verb = _flags.dialect(reading.engine)["words"][0]
    alone = len(reading.program) == len(verb) and first.rsplit("/", 1)[-1] == verb[0]
    return first if alone and "/" in first and not reading.image and "$" not in first else ""


def _gpus(reading: Reading) -> int | None:
    if reading.gpus is not None:
        return reading.gpus
    told = next((value for name in _VISIBLE if (value := reading.known.get(name)) not in (None, "all")), None)
    return None if told is None else len([one for one in told.split(",") if one.strip()])


def rewrite(text: str, reading: Reading, deployment: Deployment, again: Callable[[str], Deployment],
            sign: str = "") -> str:
    """The text with the deployment's flags and environment.

    `again` reads the result: what was written must be what is read.  `sign` begins a variable that no quotes keep from
    being put in.  Raises BadInput for a value with one, and where the result would not be what was asked.
    """
    before = again(text)
    edits = _Edits(text, reading)
    flags = _changes(before.flags, deployment.flags)
    environment = _changes(before.environment, deployment.environment)
    for name, value in {**flags, **environment}.items():
        if sign and sign in str(value):
            raise BadInput(f"{name} {value!r} would be read as a variable in this {deployment.form}",
                           remedy="write it by hand, with the sign doubled")
    edits.flags(flags)
    edits.environment(environment)
    written = splice(text, edits.made)
    after = again(written)
    for asked, told in ((deployment.flags, after.flags), (deployment.environment, after.environment)):
        wrong = [name for name, value in _changes(told, asked).items() if value is not False]
        if wrong:
            raise BadInput(f"this {deployment.form} cannot be made to say {', '.join(wrong)}",
                           remedy="change these by hand: the text says them by variables, or in quotes that hide them")
    return written


def _changes(before: Iterable[Setting], after: Iterable[Setting]) -> dict[str, SettingValue | None]:
    """What must be set (name -> value) or removed (name -> None)."""
    old, new = ({one.name: one.value for one in settings} for settings in (before, after))
    told = {name: value for name, value in new.items() if name not in old or not _same(old[name], value)}
    return {**told, **{name: None for name in old if name not in new}}


def _same(one: SettingValue, other: SettingValue) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return str(one).lower() == str(other).lower()
    return _flags.typed(str(one)) == _flags.typed(str(other))


@dataclass(slots=True)
class _Edits:
    """The edits that bring about some changes in one reading."""

    text: str
    reading: Reading
    made: list[Edit] = field(default_factory=list)

    def flags(self, changes: dict[str, SettingValue | None]) -> None:
        """Set, add and remove flags."""
        found = _flags.read(self.reading.engine, self.reading.words, self.reading.known)
        added: list[str] = []
        for name, value in changes.items():
            here = [flag for flag in found if flag.name == name]
            if value is None:
                for flag in here:
                    self._remove(flag.words)
            elif here:
                for flag in here[:-1] if name in _flags.dialect(self.reading.engine)["joined"] else ():
                    self._remove(flag.words)
                self._set(here[-1], value)
            else:
                added += self._new(name, value, found)
        self._append(added, found)

    def _set(self, flag: Flag, value: SettingValue) -> None:
        first, rest = flag.words[0], flag.words[1:]
        texts = str(value).split(" ") if len(rest) > 1 else [_told(value)]
        if flag.positional:
            self._replace(first, _told(value))
        elif "=" in first.value and not rest:
            self._replace(first, first.value.partition("=")[0] + "=" + _told(value))
        elif isinstance(value, bool):
            self._switch(flag, value)
        elif not rest:
            self._after(first, [first.value, *texts])
        else:
            for word, told in zip(rest, texts, strict=False):
                if word.value != told:
                    self._replace(word, told)
            self._remove(rest[len(texts):])
            if len(texts) > len(rest):
                self._after(rest[-1], [texts[len(rest) - 1], *texts[len(rest):]])

    def _switch(self, flag: Flag, on: bool) -> None:
        negatable = _flags.dialect(self.reading.engine)["negatable"]
        self._remove(flag.words[1:])
        if on or negatable == "all" or flag.name in negatable:
            self._replace(flag.words[0], f"--{'' if on else 'no-'}{flag.name}")
        else:
            self._remove(flag.words[:1])

    def _new(self, name: str, value: SettingValue, found: Sequence[Flag]) -> list[str]:
        """The words of a new flag, its value joined to it or apart as in most of the others."""
        if isinstance(value, bool):
            return [f"--{'' if value else 'no-'}{name}"]
        joined = sum("=" in flag.words[0].value for flag in found if len(flag.words) == 1)
        apart = sum(len(flag.words) > 1 for flag in found)
        return [f"--{name}={_told(value)}"] if joined > apart or "." in name else [f"--{name}", _told(value)]

    def _append(self, words: Sequence[str], found: Sequence[Flag]) -> None:
        if not words:
            return
        last = self.reading.words[-1] if self.reading.words else self.reading.anchor
        model = next((flag.words[0] for flag in reversed(found) if not flag.positional and flag.name), last)
        before = self._before(model)
        gap = self.text[before.end:model.start] if before else " "
        gap = gap if gap and _GAP.fullmatch(gap) else " "
        if last.style == "item":
            self._after(last, [last.value, *words])
            return
        told = ""
        for at, word in enumerate(words):
            told += (gap if word.startswith("-") or at == 0 else " ") + spell(word, replace(last, raw=""))
        self.made.append(Edit(last.end, last.end, told))

    def _after(self, word: Word, values: Sequence[str]) -> None:
        """Put words behind one that stays (the first of `values`)."""
        named = next((one for one in reversed(self.reading.words) if one.value.startswith("--")), replace(word, raw=""))
        other = word if word.style == "item" else replace(word, raw="")
        told = [spell(value, named if word.style == "item" and value.startswith("--") else other)
                for value in values[1:]]
        if word.style != "item":
            self.made.append(Edit(word.end, word.end, "".join(f" {one}" for one in told)))
            return
        line = self.text.rfind("\n", 0, word.start) + 1
        lead = self.text[line:word.start]
        if re.fullmatch(r"\s*(- )+\s*", lead) or re.fullmatch(r".*:\s+(- )+\s*", lead):
            end = self.text.find("\n", word.end)
            end = len(self.text) if end < 0 else end
            indent = " " * lead.rindex("- ") + "- "
            self.made.append(Edit(end, end, "".join(f"\n{indent}{one}" for one in told)))
        else:
            before = self._before(word)
            gap = self.text[before.end:word.start] if before else ", "
            gap = gap if re.fullmatch(r"\s*,\s*", gap) else ", "
            self.made.append(Edit(word.end, word.end, "".join(f"{gap}{one}" for one in told)))

    def _replace(self, word: Word, value: str) -> None:
        self.made.append(Edit(word.start, word.end, spell(value, word)))

    def _remove(self, words: Sequence[Word]) -> None:
        """Take out words that stand next to each other, with what parts them from the word before."""
        if not words:
            return
        lines = [self.text[self.text.rfind("\n", 0, word.start) + 1:word.start] for word in words]
        if words[0].style == "item" and all(re.fullmatch(r"\s*- \s*", lead) for lead in lines):
            for word, lead in zip(words, lines, strict=True):
                end = self.text.find("\n", word.end) + 1 or len(self.text)
                self.made.append(Edit(word.start - len(lead), end, ""))
            return
        start, end = words[0].start, words[-1].end
        before = self._before(words[0])
        gap = self.text[before.end:start] if before else ""
        if words[0].style == "item":
            if before and re.fullmatch(r"\s*,\s*", gap):
                start = before.end
            else:
                end += len((re.match(r"\s*,\s*", self.text[end:]) or [""])[0])
        elif before and gap and _GAP.fullmatch(gap):
            start = before.end
        elif not lines[0].strip():
            end += len((re.match(r"[ \t]*\n?[ \t]*", self.text[end:]) or [""])[0])
        self.made.append(Edit(start, end, ""))

    def _before(self, word: Word) -> Word | None:
        words = sorted((*self.reading.program, *self.reading.words, self.reading.anchor), key=lambda one: one.start)
        return next((one for one in reversed(words) if one.end <= word.start), None)

    def environment(self, changes: dict[str, SettingValue | None]) -> None:
        """Set, add and remove variables."""
        here = {one.name: one for one in self.reading.variables}
        once = True
        for name, value in changes.items():
            if value is None:
                self._forget(here[name])
            elif name in here and (word := here[name].word):
                self._replace(word, here[name].head + _variable(value))
            elif slot := self.reading.slot:
                pair = spell(f"{name}={_variable(value)}", slot.like)
                told = slot.text.format(pair=pair, name=name, value=spell(_variable(value), slot.like))
                self.made.append(Edit(slot.at, slot.at, (slot.once if once else "") + told))
                once = False

    def _forget(self, variable: Variable) -> None:
        start, end = variable.span
        lead = re.search(r"(?:[ \t]|\\\n)*$", self.text[:start])
        if self.text[end - 1:end] == "\n":
            pass
        elif lead and lead.start() > 0 and self.text[lead.start() - 1] != "\n":
            start = lead.start()
        else:
            end += len((_GAP.match(self.text[end:]) or [""])[0])
        self.made.append(Edit(start, end, ""))


def _told(value: SettingValue) -> str:
    return str(value)


def _variable(value: SettingValue) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
