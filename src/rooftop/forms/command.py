"""A command line, or a shell script that ends in one."""

from rooftop.domain.form import Deployment, Form
from rooftop.forms._reading import Reading, Slot, Variable, assignments, choose, find, name_of, other, within
from rooftop.forms._text import Word, whole
from rooftop.forms._words import commands
from rooftop.forms._writing import describe, rewrite


class Command:
    """`CUDA_VISIBLE_DEVICES=0,1 vllm serve MODEL --tensor-parallel-size 2`, alone or inside a script.

    Variables that the script sets with plain values are followed; what it computes is not.
    """

    name = "command"

    def reads(self, text: str) -> bool:
        """Whether a command in the text names an engine's own program."""
        return not other(text) and bool(_readings(text))

    def read(self, text: str, part: str = "") -> Deployment:
        """The engine's command; `part` is the line on which it stands (`12`)."""
        return describe(self.name, text, part, choose(_readings(text), part, "command"))

    def write(self, deployment: Deployment) -> str:
        """The script with this command changed."""
        text, part = deployment.text, deployment.part
        return rewrite(text, choose(_readings(text), part, "command"), deployment, lambda new: self.read(new, part))


def _readings(text: str) -> list[tuple[str, Reading]]:
    found: list[tuple[str, Reading]] = []
    exported: list[Variable] = []
    script: dict[str, str] = {}
    for command in commands(whole(text), "shell"):
        own = assignments(command)
        for words in within(command):
            engine = find(words)
            if engine is None:
                continue
            first = words[0]
            slot = Slot(first.start, "{name}={value} ", Word("", "", 0, 0, "shell", first.inside, first.wraps))
            variables = {one.name: one for one in (*exported, *own, *assignments(words))}
            line = str(text.count("\n", 0, first.start) + 1)
            found.append((line, Reading(engine[0], engine[1], engine[2], engine[1][-1], tuple(variables.values()), slot,
                                        outside=tuple(script.items()))))
        script |= {one.name: one.value for one in own if one.value is not None}
        if name_of(command[0]) == "export":
            exported += [*own, *(Variable(name, script[name], None, "", (0, 0)) for name in map(_value, command[1:])
                                 if name in script and name not in {one.name for one in own})]
    return found


def _value(word: Word) -> str:
    return word.value


FORM: Form = Command()
