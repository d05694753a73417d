"""A command line, or a shell script that ends in one."""

from rooftop.domain.form import Deployment, Form
from rooftop.forms._reading import Reading, Slot, choose, other, runs
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
    for run in runs(commands(whole(text), "shell")):
        first = run.first
        slot = Slot(first.start, "{name}={value} ", Word("", "", 0, 0, "shell", first.inside, first.wraps))
        line = str(text.count("\n", 0, first.start) + 1)
        found.append((line, Reading(run.engine, run.program, run.words, run.program[-1], run.variables, slot,
                                    outside=run.outside)))
    return found


FORM: Form = Command()
