"""Plug-ins by their file name: a file in the room, or an entry point of an outsider."""

from importlib import import_module, metadata, resources

from rooftop.errors import BadInput, MissingPart


def names(kind: str) -> tuple[str, ...]:
    """Names of all plug-ins of a kind (`engines`, `launchers`, ...), without importing any."""
    room = resources.files(f"rooftop.{kind}")
    files = {item.name.removesuffix(".py") for item in room.iterdir() if item.name.endswith(".py")}
    inside = {name for name in files if not name.startswith("_")}
    outside = {point.name for point in metadata.entry_points(group=f"rooftop.{kind}")}
    return tuple(sorted(inside | outside))


def load(kind: str, name: str) -> object:
    """The plug-in object: the module's attribute named after the kind (`ENGINE` in `engines/name.py`).

    Raises BadInput, naming the plug-ins there are, where there is none of that name; MissingPart where it needs
    something that is not installed.
    """
    if name not in names(kind):
        known = ", ".join(names(kind))
        raise BadInput(f"there is no {kind.removesuffix('s')} named {name!r}", remedy=f"choose one of: {known}")
    try:
        for point in metadata.entry_points(group=f"rooftop.{kind}"):
            if point.name == name:
                return point.load()
        module = import_module(f"rooftop.{kind}.{name}")
    except ImportError as error:
        raise MissingPart(f"the {kind.removesuffix('s')} {name!r} cannot be imported: {error}",
                          remedy="install the package that it needs") from error
    plugin: object = getattr(module, kind.removesuffix("s").upper())
    return plugin
