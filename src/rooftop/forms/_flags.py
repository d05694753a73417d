"""Words of an engine's command -> its flags by long name -> a plan: `ENGINE.command` read backwards."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting, SettingValue
from rooftop.forms._text import Word, resolve

_SHORT = re.compile(r"-{1,2}[A-Za-z]")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_SECRET_PARTS = frozenset(("token", "key", "apikey", "secret", "password", "passwd", "pass", "pwd", "credentials",
                           "credential", "auth", "authorization", "cookie", "bearer"))
_SECRET_VALUE = re.compile(r"\b(hf_|sk-|ghp_|github_pat_|nvapi-|glpat-|AKIA|xox[bap]-)\w{8}|[Bb]earer \S|://[^/\s:@]+:[^@\s]+@|"
                           r"(api_?key|token|secret|password)[\"']?\s*[:=]\s*[\"']?\w", re.A)


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag as it stands: its long name, what it says, and its words (the first is the flag itself).

    `value` is None where it comes from a variable that the text does not set; `text` is what stands there.
    `positional` marks a model that stands without a flag.
    """

    name: str
    value: SettingValue | None
    text: str
    words: tuple[Word, ...]
    positional: bool = False


@cache
def dialect(engine: str) -> Mapping[str, Any]:
    """The table of one engine."""
    table: Mapping[str, Any] = tables()[engine]
    return table


@cache
def tables() -> Mapping[str, Any]:
    """The tables of all engines by name."""
    return tomllib.loads(resources.files("rooftop.forms").joinpath("_flags.toml").read_text(encoding="utf-8"))


def secret(name: str, value: str = "") -> bool:
    """Whether a flag or variable holds a secret: by a word of its name, or by what its value looks like.

    A key in a file (`ssl-keyfile`) is a path, and a name in the plural counts (`max-num-batched-tokens`).
    """
    parts = re.split(r"[^a-z]+", name.lower())
    return not _SECRET_PARTS.isdisjoint(parts) or bool(_SECRET_VALUE.search(value))


def read(engine: str, words: Sequence[Word], variables: dict[str, str]) -> list[Flag]:
    """The flags in the words behind the program.  A word that no flag claims becomes one without a name."""
    table, found, at = dialect(engine), list[Flag](), 0
    while at < len(words):
        flag, at = _one(table, words, at, variables, found)
        found.append(flag)
    return found


def _one(table: Mapping[str, Any], words: Sequence[Word], at: int, variables: dict[str, str],
         before: Sequence[Flag]) -> tuple[Flag, int]:
    word = words[at]
    text = resolve(word, variables) or word.value
    if not _SHORT.match(text) or (word.expands and re.search(r"\s", text)):
        first = table is dialect("vllm") and not any(flag.positional for flag in before) and not re.search(r"\s", text)
        value = None if re.search(r"\s", text) else resolve(word, variables)
        return Flag(engine_model(table) if first else "", value, word.value, (word,), first), at + 1
    spelled, sign, given = text.partition("=")
    name, negated = long_name(table, spelled)
    if sign:
        whole = resolve(word, variables)
        return _flag(table, name, negated, None if whole is None else given, given, (word,)), at + 1
    if negated or name in table["switches"]:
        return _flag(table, name, negated, "", "", (word,)), at + 1
    end = at + 1
    several = table["lists"] == "all" or name in table["lists"]
    while end < len(words) and not _is_flag(words[end].value) and (end == at + 1 or (
            several and resolve(words[end], variables) is not None)):
        end += 1
    values = [resolve(one, variables) for one in words[at + 1:end]]
    told = " ".join(one.value for one in words[at + 1:end])
    known = None if None in values else " ".join(value or "" for value in values)
    return _flag(table, name, negated, known, told, tuple(words[at:end])), end


def _is_flag(text: str) -> bool:
    return bool(_SHORT.match(text))


def _flag(table: Mapping[str, Any], name: str, negated: bool, value: str | None, text: str,
          words: tuple[Word, ...]) -> Flag:
    if negated:
        return Flag(name, False, text, words)
    if value == "" and len(words) == 1 and "=" not in words[0].value:
        return Flag(name, True, text, words)
    if value is not None and value.lower() in ("true", "false") and name in table["switches"]:
        return Flag(name, value.lower() == "true", text, words)
    return Flag(name, None if value is None else typed(value), text, words)


def typed(text: str) -> SettingValue:
    """A whole number or a fraction as a number, everything else as it is."""
    if not _NUMBER.fullmatch(text) or re.match(r"-?0\d", text):
        return text
    return float(text) if "." in text else int(text)


def long_name(table: Mapping[str, Any], spelled: str) -> tuple[str, bool]:
    """The long name of a flag and whether it is its negation (`--no-enable-prefix-caching`)."""
    name = spelled.lstrip("-")
    if spelled.startswith("--"):
        name = name.replace("_", "-")
    head, dot, rest = name.partition(".")
    name = table["alias"].get(head, head) + dot + rest.replace("-", "_")
    if name.startswith("no-") and (table["negatable"] == "all" or name[3:] in table["negatable"]):
        return name[3:], True
    return name, False


def engine_model(table: Mapping[str, Any]) -> str:
    """The long name of the flag that names the weights."""
    return str(table["model"][0])


def settings(flags: Sequence[Flag], engine: str) -> dict[str, SettingValue]:
    """All flags by name, the last of a name holding; lists that are given in parts are joined by commas.

    What comes from an unset variable is the text as it stands.
    """
    told: dict[str, SettingValue] = {}
    for flag in flags:
        value = flag.text if flag.value is None else flag.value
        if not flag.name:
            continue
        if flag.name in told and flag.name in dialect(engine)["joined"]:
            told[flag.name] = f"{told[flag.name]},{value}"
        else:
            told[flag.name] = value
    return told


def plan(engine: str, flags: Sequence[Flag], environment: tuple[Setting, ...], version: str,
         gpus: int | None) -> tuple[Plan, tuple[str, ...], tuple[str, ...]]:
    """What the flags ask, secrets left out; the flags that tell the layout; notes on what cannot be known."""
    table, told = dialect(engine), settings(flags, engine)
    notes = [f"{'--' + flag.name if flag.name else 'some flags'} cannot be told from the text alone: {flag.text}"
             for flag in flags if flag.value is None and not secret(flag.name, flag.text)]
    notes += [f"a word that belongs to no flag: {flag.text}"
              for flag in flags if not flag.name and flag.value is not None and not secret("", flag.text)]
    try:
        layout, used, why = _layout(engine, told, gpus)
    except ValueError as error:
        layout, used, why = None, frozenset(table["degrees"]), f"the parallel sizes contradict each other: {error}"
    if why:
        notes.append(why)
    path = next((str(told[name]) for name in table["model"] if name in told), "")
    model_url = str(told.get("hf-repo", "")) if engine == "llamacpp" else ""
    named = str(told.get(table["name"], "")).split(" ")[0]
    name = named or path.rstrip("/").rsplit("/", 1)[-1].removesuffix(".gguf") or model_url or "unknown"
    if not path:
        notes.append(f"the weights come from the hub: {model_url}" if model_url else "the command names no model")
    kept = tuple(Setting(name, value) for name, value in told.items()
                 if name not in used and name not in table["ours"] and name not in table["model"]
                 and not secret(name, str(value)))
    return Plan(Model(name, path), engine, layout, kept, environment, engine_version=version), tuple(used), tuple(notes)


def _layout(engine: str, told: Mapping[str, SettingValue],
            gpus: int | None) -> tuple[Layout | None, frozenset[str], str]:
    """The layout, the flags that tell it, and why it is not known where it is None.  Raises ValueError by its laws."""
    if engine == "llamacpp":
        return _split(told, gpus)
    table = dialect(engine)
    used = {name: field for name, field in table["degrees"].items() if name in told}
    degrees: dict[str, int] = {}
    for name, field in used.items():
        value = told[name]
        if not isinstance(value, int) or isinstance(value, bool):
            return None, frozenset(used), f"the layout is unknown: --{name} is {value}"
        degrees[field] = value
    extra = list[str]()
    if engine == "vllm" and told.get("enable-expert-parallel") in (True, False):
        extra.append("enable-expert-parallel")
        if told["enable-expert-parallel"] is True:
            degrees["ep"] = degrees.get("tp", 1) * degrees.get("dp", 1)
    if engine == "sglang":
        extra += _sglang(told, degrees)
    return Layout(**degrees), frozenset((*used, *extra)), ""


def _sglang(told: Mapping[str, SettingValue], degrees: dict[str, int]) -> Iterator[str]:
    """SGLang's second ways to say a degree: attention groups as dp (until 0.5.21), ep = tp by a switch."""
    if told.get("enable-dp-attention") is True:
        yield "enable-dp-attention"
        groups = degrees.pop("dp", 1)
        degrees["attention_dp"] = degrees.get("attention_dp", groups)
    for switch in ("enable-ep-moe", "enable-deepep-moe"):
        if told.get(switch) is True:
            if switch == "enable-ep-moe":
                yield switch
            degrees["ep"] = degrees.get("tp", 1)
    if told.get("moe-a2a-backend") in dialect("sglang")["spanning"]:
        degrees["ep"] = degrees.get("tp", 1)


def _split(told: Mapping[str, SettingValue], gpus: int | None) -> tuple[Layout | None, frozenset[str], str]:
    """llama-server's split: over as many GPUs as it names or is given; unknown where the text tells no number."""
    mode, share = str(told.get("split-mode", "layer")), str(told.get("tensor-split", ""))
    if share:
        gpus = sum(1 for part in re.split(r"[,/]", share) if part.strip() not in ("", "0", "0.0"))
    elif "device" in told:
        gpus = 0 if told["device"] == "none" else len(str(told["device"]).split(","))
    if told.get("n-gpu-layers") in (0, "0") or gpus in (0, 1) or mode == "none":
        used = frozenset(("split-mode",)) if mode != "none" and "split-mode" in told else frozenset[str]()
        return Layout(), used, ""
    if gpus is None or mode not in ("layer", "tensor"):
        why = (f"the layout is unknown: split-mode {mode}" if mode not in ("layer", "tensor")
               else "the layout is unknown: the text does not tell on how many GPUs llama-server runs")
        return None, frozenset(), why
    return Layout(pp=gpus) if mode == "layer" else Layout(tp=gpus), frozenset(("split-mode",)), ""

