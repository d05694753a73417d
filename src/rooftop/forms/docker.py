"""A `docker run` command (podman and nerdctl too), alone or in a script."""

from dataclasses import replace

from rooftop.domain.form import Deployment, Form
from rooftop.forms._reading import Reading, assignments, choose, container, of_container, other, within
from rooftop.forms._text import whole
from rooftop.forms._words import commands
from rooftop.forms._writing import describe, rewrite


class Docker:
    """`docker run [options] IMAGE [words]`: image, ports, mounts and variables are told, all options are kept."""

    name = "docker"

    def reads(self, text: str) -> bool:
        """Whether a container that runs an engine is started in the text."""
        return not other(text) and bool(_readings(text))

    def read(self, text: str, part: str = "") -> Deployment:
        """The engine in the container; `part` is the line on which its command stands."""
        return describe(self.name, text, part, choose(_readings(text), part, "docker command"))

    def write(self, deployment: Deployment) -> str:
        """The script with this command changed."""
        text, part = deployment.text, deployment.part
        reading = choose(_readings(text), part, "docker command")
        return rewrite(text, reading, deployment, lambda new: self.read(new, part))


def _readings(text: str) -> list[tuple[str, Reading]]:
    found: list[tuple[str, Reading]] = []
    script: dict[str, str] = {}
    for command in commands(whole(text), "shell"):
        for words in [command] if container(command) else within(command) or []:
            reading = of_container(words, text)
            if reading is not None:
                line = str(text.count("\n", 0, words[0].start) + 1)
                found.append((line, replace(reading, outside=(*script.items(), *reading.outside))))
        script |= {one.name: one.value for one in assignments(command) if one.value is not None}
    return found


FORM: Form = Docker()
