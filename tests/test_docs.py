"""The documentation against the live program: commands, flags, study files, links, exit codes."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from rooftop import errors
from rooftop.catalog import machines
from rooftop.cli import app
from rooftop.domain import codec
from rooftop.domain.layout import Layout
from rooftop.domain.study import Load, Order, Setup, Study
from rooftop.workflows.steps import workloads

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, kind: str) -> list[str]:
    return [body for found, body in BLOCK.findall(text(page)) if found == kind]


def prose(page: Path) -> str:
    return BLOCK.sub("", text(page))


def commands(page: Path) -> Iterator[str]:
    """Every rooftop command that a page shows, in blocks and in words."""
    for body in blocks(page, ""):
        yield from (re.split(r"\s{2,}", line)[0] for line in body.splitlines() if line.startswith("rooftop "))
    for body in blocks(page, "sh"):
        for line in re.split(r"\n|&&|\|", body.replace("\\\n", " ")):
            if re.match(r"(\S*/)?rooftop\b", line.strip()):
                yield line.partition(" #")[0].strip()
    yield from (code for code in CODE.findall(prose(page)) if code.startswith("rooftop "))


SHOWN = [(page, command) for page in PAGES for command in commands(page)]


@pytest.mark.parametrize(("page", "command"), SHOWN, ids=[f"{name(page)}: {command}" for page, command in SHOWN])
def test_a_command_parses(page: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").touch()
    words = shlex.split(command)[1:]
    if words == ["--version"]:
        return
    app.rooftop.commands[words[0]].make_context(words[0], words[1:])


def test_each_command_is_shown() -> None:
    shown = {shlex.split(command)[1] for _, command in SHOWN}
    assert set(app.rooftop.commands) <= shown


def flags(command: click.Command) -> set[str]:
    return {word for option in command.params for word in (*option.opts, *option.secondary_opts)}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_flags_in_words_exist(page: Path) -> None:
    """A page named after a command speaks of that command's flags, the others of any; an engine's are in its room."""
    own = app.rooftop.commands.get(page.stem)
    known = flags(own) if own else set().union(*map(flags, app.rooftop.commands.values()))
    for code in CODE.findall(prose(page)):
        flag = code.split()[0]
        if flag.startswith("--") and flag not in known:
            assert flag.removeprefix("--").replace("-", "_") in ENGINES, flag


ENGINES = set(re.findall(r"\w+", "".join(
    text(file).replace("-", "_") for file in (ROOT / "src" / "rooftop" / "engines").glob("*.*"))))


@pytest.mark.parametrize(("page", "toml"), [(page, toml) for page in PAGES for toml in blocks(page, "toml")])
def test_a_file_in_a_page_can_be_read(page: Path, toml: str) -> None:
    if "[[setup]]" not in toml:
        assert page.stem == "machine"
        machines.read(toml, where=name(page))
        return
    study = codec.from_toml(Study, toml, where=name(page))
    assert workloads(study)
    assert study.setup


def test_the_study_page_names_every_key() -> None:
    """What a user may write stands in the page: each key of a study, its load, its order and its setups."""
    page = text(ROOT / "docs" / "study.md")
    for noun in (Study, Load, Order, Setup, Layout):
        for field in fields(noun):
            assert re.search(rf"\b{field.name}\b", page), field.name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            heads = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
                     for head in re.findall(r"^#+ (.*)$", text(target), re.M)}
            assert anchor in heads, link


def test_every_page_can_be_found() -> None:
    linked = {(page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in LINK.findall(prose(page))}
    for page in PAGES[1:]:
        assert page in linked or page.parent in linked, name(page)


def readme_command(mark: str) -> str:
    (body,) = re.findall(rf"<!-- {mark} -->\n```sh\n(.*?)\n```", text(README), re.S)
    assert "\n" not in body
    return str(body)


@pytest.mark.parametrize("mark", ["demo", "test"])
def test_the_two_commands_need_only_python(mark: str) -> None:
    parts = [shlex.split(part) for part in readme_command(mark).split("&&")]
    assert parts[0] == ["python3", "-m", "venv", ".venv"]
    assert all(part[0].startswith(".venv/bin/") for part in parts[1:])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    install = parts[1]
    assert install[:2] == [".venv/bin/pip", "install"]
    assert (ROOT / install[install.index("-qc") + 1]).is_file()
    extras = re.fullmatch(r"\.\[(.+)\]", install[-1])
    assert extras is not None
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert parts[-1] == ([".venv/bin/rooftop", "study", "smollm2-cpu"] if mark == "demo" else
                         [".venv/bin/python", "-m", "pytest"])


def test_the_checks_run_the_commands_to_the_letter() -> None:
    """Both scripts take the commands out of the README by their marks, so that what is checked is what is written."""
    for script, marks in (("run", ["test"]), ("fresh", ["demo", "test"])):
        written = text(ROOT / ".ci" / script)
        assert all(mark in written for mark in marks)
        assert "README.md" in written
        # The only other tests are the slow target that the README's command leaves out.
        assert written.count("pytest") == written.count("pytest tests/vllm -m vllm")


def test_exit_codes_are_those_of_the_errors() -> None:
    told = text(ROOT / "docs" / "bench.md").partition("Exit codes:")[2].partition("\n\n")[0]
    codes = {int(code) for code in re.findall(r"(?:^|;)\s*(\d+)\s", told)}
    known = {kind.exit_code for kind in vars(errors).values()
             if isinstance(kind, type) and issubclass(kind, errors.RooftopError)}
    assert {0, 2, 5, 6, 7, 130} <= codes <= known | {0}
