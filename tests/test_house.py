"""The laws of the house that a machine can check."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "rooftop"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8
MAX_DEPTH = 2
# A command's parameters are its flags: click hands each of them over by name.
COMMANDS = ("cli/app.py", "cli/reading.py")
TOP = "cli/app.py"
FORBIDDEN_WORDS = ("Manager", "Handler", "Helper", "Factory", "Mixin", "Impl", "utils", "common", "misc")


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_rooms_are_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES
    assert len(path.relative_to(SOURCE).parts) - 1 <= MAX_DEPTH


@pytest.mark.parametrize("path", FILES, ids=name)
def test_functions_are_small(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"
            if name(path) not in COMMANDS:
                count = sum(map(len, (node.args.posonlyargs, node.args.args, node.args.kwonlyargs)))
                count -= any(arg.arg in ("self", "cls") for arg in node.args.args[:1])
                assert count <= MAX_PARAMETERS, f"{node.name} has {count} parameters"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_names_explain_themselves(path: Path) -> None:
    assert not any(word in path.stem for word in FORBIDDEN_WORDS)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            assert not any(word in node.name for word in FORBIDDEN_WORDS), node.name


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_inheritance_but_protocol_enum_exception(path: Path) -> None:
    allowed = {"Protocol", "Enum", "Exception", "NamedTuple", "TypedDict", "ParamType", "HTMLParser"}
    errors = {"RooftopError", "Expected", "Failure"} if name(path) == "errors.py" else set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
            assert bases <= allowed | errors, f"{node.name}({', '.join(bases)})"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_only_the_top_catches_everything(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ExceptHandler) and name(path) != TOP:
            caught = ast.unparse(node.type) if node.type else "everything"
            assert caught not in ("Exception", "BaseException", "everything")


def test_only_the_face_prints() -> None:
    for path in FILES:
        if name(path).startswith(("cli/", "load/__main__", "load/truth", "llama_server", "launchers/_supervisor")):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", name(path)


def test_importing_rooftop_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import rooftop; print(*sorted(set(sys.modules) - before))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["rooftop"]


def test_import_floors() -> None:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          cwd=SOURCE.parent.parent)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_no_import_cycles_inside_or_between_rooms() -> None:
    graph = {path: {target for target in FILES if target != path and _imports(path, target)} for path in FILES}
    seen: dict[Path, int] = {}

    def visit(path: Path, trail: tuple[Path, ...]) -> None:
        if path in trail:
            raise AssertionError(" -> ".join(map(name, (*trail[trail.index(path):], path))))
        if path not in seen:
            for target in sorted(graph[path]):
                visit(target, (*trail, path))
            seen[path] = 1

    for path in FILES:
        visit(path, ())


@pytest.mark.parametrize("room", ["engines", "launchers", "hardware", "forms", "formats", "diagnose"])
def test_plug_ins_do_not_know_each_other(room: str) -> None:
    plug_ins = [path for path in FILES if path.parent.name == room and not path.stem.startswith("_")]
    for path in plug_ins:
        for other in plug_ins:
            assert path == other or not _imports(path, other), f"{name(path)} imports {name(other)}"


@cache
def _imported(path: Path) -> frozenset[str]:
    """Every dotted name that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def _imports(path: Path, target: Path) -> bool:
    module = "rooftop." + name(target).removesuffix(".py").replace("/", ".")
    package = module.removesuffix(".__init__")
    return package != "rooftop" and package in _imported(path)
