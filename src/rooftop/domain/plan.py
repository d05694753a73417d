"""One deployment to try: model, machine, layout, engine and settings."""

import hashlib
import json
from dataclasses import asdict, dataclass

from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.model import Model
from rooftop.domain.setting import Setting as Setting
from rooftop.domain.setting import SettingValue as SettingValue


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of an engine.  None means that it is not known (a server that rooftop did not start).

    `binary` names the user's own engine program, "" for the engine's usual one.  `title` is the user's name for this
    configuration; it is no part of the key.  `engine_version` is the version whose rules and options hold, "" for the
    newest that the engine knows.

    Where it runs: `launcher` names the launcher ("" for this machine), `image` the container's, and `launcher_options`
    are words for it: options of `docker run`, properties of a unit.
    """

    model: Model
    engine: str | None = None
    layout: Layout | None = None
    settings: tuple[Setting, ...] = ()
    environment: tuple[Setting, ...] = ()
    machine: Machine | None = None
    binary: str = ""
    title: str = ""
    engine_version: str = ""
    launcher: str = ""
    image: str = ""
    launcher_options: tuple[str, ...] = ()

    def setting(self, name: str) -> SettingValue | None:
        """The value asked for one flag, None where it is left to the engine."""
        return next((setting.value for setting in self.settings if setting.name == name), None)

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits of a hash over the content: equal plans have equal keys, titles aside.

        Of the machine only its name counts, so that a new kernel does not make another plan of it.
        """
        content = asdict(self)
        content.pop("title")
        for name in ("engine_version", "launcher", "image", "launcher_options"):
            if not content[name]:
                content.pop(name)
        content["machine"] = self.machine.name if self.machine else None
        content["settings"] = sorted(([s.name, s.value] for s in self.settings), key=repr)
        content["environment"] = sorted(([s.name, s.value] for s in self.environment), key=repr)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
