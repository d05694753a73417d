"""A Kubernetes manifest with a container that runs an engine."""

import re
from collections.abc import Iterator
from dataclasses import replace

from rooftop.domain.form import Deployment, Form, Mount
from rooftop.forms._reading import Reading, Slot, Variable, by_image, choose, runs
from rooftop.forms._text import Word, whole
from rooftop.forms._writing import describe, rewrite
from rooftop.forms._yaml import Node, documents, entries, get, items, lines, scalar, word, words

_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi")


class Kubernetes:
    """A container of any workload (Deployment, StatefulSet, LeaderWorkerSet, ...); all other documents are kept."""

    name = "kubernetes"

    def reads(self, text: str) -> bool:
        """Whether the text has `apiVersion:` and `kind:` at its left edge."""
        return all(re.search(rf"^{key}:\s", text, re.M) for key in ("apiVersion", "kind"))

    def read(self, text: str, part: str = "") -> Deployment:
        """The engine of a container; `part` is the container's name."""
        return describe(self.name, text, part, choose(_readings(text), part, "container"))

    def write(self, deployment: Deployment) -> str:
        """The manifest with this container's words and variables changed."""
        text, part = deployment.text, deployment.part
        reading = choose(_readings(text), part, "container")
        return rewrite(text, reading, deployment, lambda new: self.read(new, part), "$(")


def _readings(text: str) -> list[tuple[str, Reading]]:
    found: list[tuple[str, Reading]] = []
    for root in documents(text):
        for pod in _pods(root):
            for container in items(get(pod, "containers")):
                reading = _container(container, pod, text)
                if reading is not None:
                    names = {name for name, _ in found}
                    name = scalar(get(container, "name")) or "container"
                    name = name if name not in names else f"{name} {len(found) + 1}"
                    found.append((name, replace(reading, name=name)))
    return found


def _pods(node: Node) -> Iterator[Node]:
    """Every mapping that holds containers, wherever in the document."""
    if node.id == "mapping":
        if get(node, "containers") is not None:
            yield node
        for _, value in node.value:
            yield from _pods(value)
    elif node.id == "sequence":
        for one in node.value:
            yield from _pods(one)


def _container(container: Node, pod: Node, text: str) -> Reading | None:
    image, command = scalar(get(container, "image")), words(get(container, "command"), text)
    args = words(get(container, "args"), text)
    told = [*command, *args]
    run = next(runs([tuple(told)] if told else []), None)
    engine = (run.engine, run.program, run.words) if run else None
    if engine is None and not command:
        engine = by_image(image, args)
    if engine is None:
        return None
    anchor = told[-1] if told else word(get(container, "image"), text)
    limits = [get(container, "resources", kind) for kind in ("limits", "requests")]
    gpus = next((int(value) for one in limits for key, _, node in entries(one)
                 if key in _GPUS and (value := scalar(node)).isdigit()), None)
    known = ("image", "command", "args", "env", "ports", "volumeMounts", "name")
    return Reading(
        *engine, anchor, (*_environment(get(container, "env"), text), *(run.variables if run else ())),
        _slot(container, text), image, scalar(get(container, "name")),
        tuple(scalar(get(one, "containerPort")) for one in items(get(container, "ports"))),
        tuple(_mounts(container, pod)), gpus,
        tuple(dict.fromkeys(key for node in (pod, container) for key, _, _ in entries(node)
                            if key not in (*known, "containers"))),
        tuple(f"variables of a ConfigMap or Secret are not read: {scalar(get(one, kind, 'name'))}"
              for one in items(get(container, "envFrom")) for kind, _, _ in entries(one)),
        run.outside if run else ())


def _environment(node: Node | None, text: str) -> Iterator[Variable]:
    for one in items(node):
        name, value = scalar(get(one, "name")), get(one, "value")
        told = word(value, text) if value is not None else None
        known = scalar(value) if told and "$(" not in scalar(value) else None
        yield Variable(name, known, told, "", lines(one.start_mark.index, _end(one), text))


def _end(node: Node) -> int:
    """Where the last scalar of a node ends (a block node's own end is the next token)."""
    if node.id == "scalar" or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last if node.id == "sequence" else last[1])


def _slot(container: Node, text: str) -> Slot | None:
    """Behind the last variable; before the first key of the container where there is no `env` yet."""
    node = get(container, "env")
    plain = Word("", "", 0, 0, "item", whole(""))
    if node is not None and node.value and not node.flow_style:
        at = lines(node.value[-1].start_mark.index, _end(node.value[-1]), text)[1]
        indent = " " * (node.value[0].start_mark.column - 2)
        ended = "" if text[at - 1:at] == "\n" else "\n"
        return Slot(at, f"{ended}{indent}- name: {{name}}\n{indent}  value: {{value}}\n", plain)
    if node is not None or container.flow_style or len(container.value) < 2:
        return None
    key = container.value[1][0]
    at, indent = text.rfind("\n", 0, key.start_mark.index) + 1, " " * key.start_mark.column
    return Slot(at, f"{indent}- name: {{name}}\n{indent}  value: {{value}}\n", plain, f"{indent}env:\n")


def _mounts(container: Node, pod: Node) -> Iterator[Mount]:
    folders = {scalar(get(one, "name")): scalar(get(one, "hostPath", "path")) for one in items(get(pod, "volumes"))}
    for one in items(get(container, "volumeMounts")):
        yield Mount(folders.get(scalar(get(one, "name")), ""), scalar(get(one, "mountPath")))


FORM: Form = Kubernetes()
