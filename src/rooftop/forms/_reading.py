"""What a form finds: the engine's words, the variables around it, the container it runs in."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rooftop.domain.form import Mount
from rooftop.errors import BadInput
from rooftop.forms import _flags
from rooftop.forms._text import Word, whole
from rooftop.forms._words import assignment, commands

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ash"))
RUNTIMES = frozenset(("docker", "podman", "nerdctl"))
_TALK = frozenset(("echo", "printf", "pip", "pip3", "curl", "wget", "pgrep", "pkill", "grep", "which", "command",
                   "cat"))
# Options of `docker run` and its kin that take no value.
_BARE = frozenset(("detach", "interactive", "tty", "rm", "privileged", "init", "no-healthcheck", "oom-kill-disable",
                   "publish-all", "read-only", "sig-proxy", "quiet", "disable-content-trust", "help", "replace", "rmi",
                   "no-hosts", "env-host", "tls-verify", "use-api-socket"))
_BARE_LETTERS = "ditPq"


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: `word` ends with its value, behind `head`; `span` is what goes when it is removed."""

    name: str
    value: str | None
    word: Word | None
    head: str
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a new variable goes; `text` is written there with `{name}`, `{value}` and `{pair}` put in, spelled `like`.

    `once` stands before the first (a heading that is not there yet).
    """

    at: int
    text: str
    like: Word
    once: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One engine in a text, with places.  New flags go behind `words`, or behind `anchor` where there are none."""

    engine: str
    program: tuple[Word, ...]
    words: tuple[Word, ...]
    anchor: Word
    variables: tuple[Variable, ...] = ()
    slot: Slot | None = None
    image: str = ""
    name: str = ""
    published: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    gpus: int | None = None
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    outside: tuple[tuple[str, str], ...] = ()

    @property
    def known(self) -> dict[str, str]:
        """What the text itself sets: `outside` the engine (a script around its container), then its own variables."""
        return {**dict(self.outside), **{one.name: one.value for one in self.variables if one.value is not None}}


@dataclass(frozen=True, slots=True)
class Run:
    """An engine's command in a script: `first` is the command's first word.

    `variables` are exported to it or stand before it, `outside` is what else the script sets.
    """

    engine: str
    program: tuple[Word, ...]
    words: tuple[Word, ...]
    first: Word
    variables: tuple[Variable, ...] = ()
    outside: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Container:
    """What a `docker run` says, as it is read."""

    image: Word
    words: tuple[Word, ...]
    options: list[tuple[str, str, tuple[Word, ...]]] = field(default_factory=list)

    def values(self, *names: str) -> list[str]:
        """The values of an option under any of its names."""
        return [value for name, value, _ in self.options if name in names]


def other(text: str) -> bool:
    """Whether a text is no shell command: a unit's sections, or YAML's keys at the left edge."""
    return bool(re.search(r"^\[Service\]|^[A-Za-z]\w*:(\s|$)", text, re.M)) and not text.startswith("#!")


def name_of(word: Word) -> str:
    """The last part of a program's path, without systemd's marks before it."""
    return posixpath.basename(word.value.lstrip("-@:+!|"))


def find(words: Sequence[Word]) -> tuple[str, tuple[Word, ...], tuple[Word, ...]] | None:
    """Engine, program and the words behind it, where a command runs an engine by name; None for all others."""
    if not words or name_of(words[0]) in _TALK or any(name_of(word) in RUNTIMES for word in words[:3]):
        return None
    for engine, table in _flags.tables().items():
        modules = table["modules"]
        scripts = tuple(one.replace(".", "/") + ".py" for one in modules)
        for at, word in enumerate(words):
            value = word.value
            end = 0
            if value == "-m" and at + 1 < len(words) and words[at + 1].value in modules:
                end = at + 2
            elif value.endswith(scripts):
                end = at + 1
            else:
                for verb in table["words"]:
                    following = [one.value for one in words[at + 1:at + len(verb)]]
                    if name_of(word) == verb[0] and following == verb[1:]:
                        end = at + len(verb)
            if end and words[end - 1].value.endswith("cli.main") and end < len(words) and words[end].value == "serve":
                end += 1
            if end:
                return engine, tuple(words[:end]), tuple(words[end:])
    return None


def runs(script: Sequence[tuple[Word, ...]]) -> Iterator[Run]:
    """The engines that the commands of a script run, by a shell inside of one (`bash -c '...'`) too."""
    exported: dict[str, Variable] = {}
    told: dict[str, str] = {}
    for command in script:
        own = assignments(command)
        given = {**exported, **{one.name: one for one in own}}
        if (inner := within(command)) is not None:
            for run in runs(inner):
                both = {**given, **{one.name: one for one in run.variables}}
                yield replace(run, variables=tuple(both.values()), outside=(*told.items(), *run.outside))
        elif (engine := find(command)) is not None:
            yield Run(*engine, command[0], tuple(given.values()), tuple(told.items()))
        told |= {one.name: one.value for one in own if one.value is not None}
        if name_of(command[0]) == "export":
            names = [word.value for word in command[1:] if word.value in told]
            exported |= {name: Variable(name, told[name], None, "", (0, 0)) for name in names}
            exported |= {one.name: one for one in own}


def within(words: Sequence[Word]) -> list[tuple[Word, ...]] | None:
    """The commands of the script that a command hands to a shell (`bash -c '...'`); None where it hands none."""
    shell = next((at for at, word in enumerate(words) if name_of(word) in SHELLS), len(words))
    for at in range(shell + 1, len(words) - 1):
        if re.fullmatch(r"-\w*c", words[at].value):
            return commands(words[at + 1].inside, "shell")
        if not words[at].value.startswith("-"):
            break
    return None


def by_image(image: str, words: Sequence[Word]) -> tuple[str, tuple[Word, ...], tuple[Word, ...]] | None:
    """Engine and words where an image that starts the engine by itself is given flags (or a model) alone."""
    if words and not words[0].value.startswith("-") and not re.fullmatch(r"[\w.-]+/[\w.-]+|/\S+|\$.*", words[0].value):
        return None
    for engine, table in _flags.tables().items():
        if any(part in image for part in table["images"]) and not (engine == "sglang" and not words):
            rest = [word for word in words if word.value not in ("--server",)] if engine == "llamacpp" else list(words)
            return engine, (), tuple(rest)
    return None


def version(image: str) -> str:
    """The version in an image's tag: `vllm/vllm-openai:v0.8.5` is 0.8.5; "" where the tag tells none."""
    found = re.search(r":v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+|rc\d+)?)", image.partition("@")[0].rpartition("/")[2])
    return found[1] if found else ""


def container(words: Sequence[Word]) -> Container | None:
    """A `docker run` (or podman, nerdctl) and what follows its image; None for any other command."""
    start = next((at for at, word in enumerate(words[:4]) if name_of(word) in RUNTIMES), None)
    run = next((at for at, word in enumerate(words) if word.value in ("run", "create")), None)
    if start is None or run is None or run < start:
        return None
    options: list[tuple[str, str, tuple[Word, ...]]] = []
    at = run + 1
    while at < len(words) and words[at].value.startswith("-"):
        name, value, count = _option(words, at)
        options.append((name, value, tuple(words[at:at + count])))
        at += count
    if at >= len(words):
        return None
    return Container(words[at], tuple(words[at + 1:]), options)


def _option(words: Sequence[Word], at: int) -> tuple[str, str, int]:
    """Name, value and number of words of one option: `--name=v`, `--name v`, `-n v`, `-nv`, `-it`."""
    text = words[at].value
    following = words[at + 1].value if at + 1 < len(words) else ""
    if text.startswith("--"):
        name, sign, value = text[2:].partition("=")
        if sign:
            return name, value, 1
        return (name, "", 1) if name in _BARE else (name, following, 2)
    letters = text[1:]
    while letters and letters[0] in _BARE_LETTERS:
        letters = letters[1:]
    if not letters:
        return text[1:], "", 1
    return (letters[0], following, 2) if len(letters) == 1 else (letters[0], letters[1:].removeprefix("="), 1)


def of_container(words: Sequence[Word], text: str) -> Reading | None:
    """The engine in a `docker run` with the container around it; None where it runs none."""
    box = container(words)
    if box is None:
        return None
    entry = box.values("entrypoint")
    inner = box.words
    if entry and entry[0]:
        inner = (*commands(whole(entry[0]), "shell")[0], *box.words) if box.words else ()
    run = next(runs([inner] if inner else []), None)
    engine = (run.engine, run.program, run.words) if run else None
    if engine is None and not entry:
        engine = by_image(box.image.value, box.words)
    if engine is None:
        return None
    verb = next(word for word in words if word.value in ("run", "create"))
    like = replace(box.image, raw="", value="")
    last = box.options[-1][2][-1] if box.options else verb
    mounts = tuple(mount for value in box.values("v", "volume") if (mount := mounted(value)))
    mounts += tuple(mount for value in box.values("mount") if (mount := _mount(value)))
    kept = dict.fromkeys(name for name, _, _ in box.options if name not in ("e", "env"))
    return Reading(
        *engine, box.image if entry or not engine[1] else engine[1][-1],
        (*_environment(box), *(run.variables if run else ())),
        Slot(last.end, text[last.end:box.image.start] + "-e {pair}", like), box.image.value,
        (box.values("name") or [""])[0], tuple(box.values("p", "publish")), mounts,
        gpu_count((box.values("gpus") or [""])[0]), tuple(kept),
        tuple(f"variables in a file are not read: {name}" for name in box.values("env-file")),
        run.outside if run else ())


def _environment(box: Container) -> Iterable[Variable]:
    for name, value, words in box.options:
        if name in ("e", "env"):
            key, sign, told = value.partition("=")
            word = words[-1]
            head = word.value[:len(word.value) - len(told)] if sign else ""
            known = told if sign and "$" not in told else None
            yield Variable(key, known, word if sign else None, head, (words[0].start, word.end))


def mounted(value: str) -> Mount | None:
    """A volume in docker's short form: `/data:/models:ro`, `cache:/root/.cache` (a volume that is no folder)."""
    source, sign, rest = value.partition(":")
    if not sign:
        return None
    return Mount(source if re.match(r"[/.~$]", source) else "", rest.split(":")[0])


def _mount(value: str) -> Mount | None:
    parts = dict(part.partition("=")[::2] for part in value.split(","))
    target = parts.get("target") or parts.get("dst") or parts.get("destination")
    source = parts.get("source") or parts.get("src") or ""
    return Mount(source if parts.get("type") == "bind" else "", target) if target else None


def gpu_count(value: str) -> int | None:
    """How many GPUs `--gpus` names: `2`, `device=0,1`; None for `all`, and where it names none."""
    if value.isdigit():
        return int(value)
    found = re.search(r"device=([\w,-]+)", value)
    return len(found[1].split(",")) if found else None


def assignments(words: Sequence[Word]) -> list[Variable]:
    """The variables set before a program: `A=1 B=2 vllm serve ...`, also behind `nohup env` or `export`."""
    found: list[Variable] = []
    for word in words:
        if (pair := assignment(word)) is None:
            if name_of(word) not in ("env", "export", "exec", "sudo", "nohup", "local", "declare", "-x"):
                break
            continue
        name, value = pair
        head = word.value[:len(word.value) - len(value.value)]
        found.append(Variable(name, None if "$" in value.value else value.value, word, head, (word.start, word.end)))
    return found


def choose(readings: Sequence[tuple[str, Reading]], part: str, what: str) -> Reading:
    """The reading of that name, or the only one.  Raises BadInput where there is none, or several and none is named."""
    names = ", ".join(name for name, _ in readings)
    if part:
        chosen = [reading for name, reading in readings if name == part]
        if len(chosen) != 1:
            raise BadInput(f"there is no {what} {part!r} that runs an engine", remedy=f"name one of: {names}")
        return chosen[0]
    if not readings:
        raise BadInput(f"no {what} in it runs vLLM, SGLang or llama-server",
                       remedy="give the file that holds the engine's own command line (the script that it calls, the "
                              "rendered template), with its flags")
    if len(readings) > 1:
        raise BadInput(f"several engines run in it: {names}", remedy=f"name the {what} that you mean")
    return readings[0][1]
