"""A compose file with a service that runs an engine."""

import re
from collections.abc import Iterator

from rooftop.domain.form import Deployment, Form, Mount
from rooftop.forms._reading import Reading, Slot, Variable, by_image, choose, mounted, runs
from rooftop.forms._text import Word, whole
from rooftop.forms._writing import describe, rewrite
from rooftop.forms._yaml import Node, column, documents, entries, get, items, lines, scalar, view, word, words


class Compose:
    """A service with `image`, `command`, `environment`; all else, comments and anchors too, is kept."""

    name = "compose"

    def reads(self, text: str) -> bool:
        """Whether the text has `services:` at its left edge."""
        return bool(re.search(r"^services:\s*(#.*)?$", text, re.M))

    def read(self, text: str, part: str = "") -> Deployment:
        """The engine of a service; `part` is the service's name."""
        return describe(self.name, text, part, choose(_readings(text), part, "service"))

    def write(self, deployment: Deployment) -> str:
        """The file with this service's command and environment changed."""
        text, part = deployment.text, deployment.part
        reading = choose(_readings(text), part, "service")
        return rewrite(text, reading, deployment, lambda new: self.read(new, part), "$")


def _readings(text: str) -> list[tuple[str, Reading]]:
    found = []
    for root in documents(text):
        for name, _, service in entries(get(root, "services")):
            reading = _service(name, service, text)
            if reading is not None:
                found.append((name, reading))
    return found


def _service(name: str, service: Node, text: str) -> Reading | None:
    image, entry = scalar(get(service, "image")), words(get(service, "entrypoint"), text)
    args = words(get(service, "command"), text)
    told = [*entry, *args]
    run = next(runs([tuple(told)] if told else []), None)
    engine = (run.engine, run.program, run.words) if run else None
    if engine is None and not entry:
        engine = by_image(image, args)
    if engine is None:
        return None
    first = get(service, "image") or get(service, "command") or service
    anchor = told[-1] if told else word(first, text)
    known = ("image", "command", "entrypoint", "environment", "ports", "volumes")
    return Reading(
        *engine, anchor, (*_environment(get(service, "environment"), text), *(run.variables if run else ())),
        _slot(service, text), image, scalar(get(service, "container_name")) or name,
        tuple(scalar(one) or ":".join(scalar(value) for _, _, value in entries(one))
              for one in items(get(service, "ports"))),
        tuple(mount for one in items(get(service, "volumes")) if (mount := _mount(one))), _gpus(service),
        tuple(key for key, _, _ in entries(service) if key not in known),
        tuple(f"variables in a file are not read: {file}" for file in _files(service)),
        run.outside if run else ())


def _files(service: Node) -> list[str]:
    node = get(service, "env_file")
    return [scalar(one) or scalar(get(one, "path")) for one in items(node)] or [one for one in [scalar(node)] if one]


def _environment(node: Node | None, text: str) -> Iterator[Variable]:
    for name, key, value in entries(node):
        told = word(value, text) if value.id == "scalar" and value.end_mark.index > value.start_mark.index else None
        known = scalar(value) if told and "$" not in scalar(value) else None
        yield Variable(name, known, told, "", lines(key.start_mark.index, value.end_mark.index, text))
    for one in items(node):
        name, sign, value = scalar(one).partition("=")
        known = value if sign and "$" not in value else None
        yield Variable(name, known, word(one, text) if sign else None, f"{name}=",
                       lines(one.start_mark.index, one.end_mark.index, text))


def _slot(service: Node, text: str) -> Slot | None:
    """Behind the last variable; before the first key of the service where there is no `environment` yet."""
    node = get(service, "environment")
    if node is not None and node.value and not node.flow_style:
        listed = node.id == "sequence"
        last = node.value[-1] if listed else node.value[-1][1]
        first = node.value[0] if listed else node.value[0][0]
        at = lines(last.start_mark.index, last.end_mark.index, text)[1]
        lead = re.match(r"\s*", text[text.rfind("\n", 0, first.start_mark.index) + 1:])
        indent = lead[0] if lead else ""
        ended = "" if text[at - 1:at] == "\n" else "\n"
        return Slot(at, f"{ended}{indent}" + ("- {pair}\n" if listed else "{name}: {value}\n"),
                    _like(first if listed else node.value[-1][1], text))
    if node is not None or service.flow_style:
        return None
    key = service.value[0][0]
    indent, at = column(key), text.rfind("\n", 0, key.start_mark.index) + 1
    return Slot(at, f"{indent}  {{name}}: {{value}}\n", _like(key, text), f"{indent}environment:\n")


def _like(node: Node, text: str) -> Word:
    if node.id != "scalar":
        return Word("", "", 0, 0, "item", whole(""))
    inside = view(node, text)
    raw = '""' if inside.wraps == ("yaml-double",) else "''" if inside.wraps == ("yaml-single",) else ""
    return Word("", raw, 0, 0, "item", inside)


def _mount(node: Node) -> Mount | None:
    if node.id == "scalar":
        return mounted(scalar(node))
    source, target = scalar(get(node, "source")), scalar(get(node, "target"))
    return Mount(source if scalar(get(node, "type")) == "bind" else "", target) if target else None


def _gpus(service: Node) -> int | None:
    for one in items(get(service, "deploy", "resources", "reservations", "devices")):
        if (count := scalar(get(one, "count"))).isdigit():
            return int(count)
        if ids := items(get(one, "device_ids")):
            return sum(len(scalar(one).split(",")) for one in ids)
    return None


FORM: Form = Compose()
