"""A machine behind ssh: through a program that stands for ssh and runs the words here."""

from pathlib import Path

import pytest

from rooftop.errors import BadInput, ProbeFailed
from rooftop.hardware.ssh import SshHost


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    """Runs its last word with a shell, as the far machine would; `down` and `slow` are machines that do not answer."""
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\n"
                       'case "$1" in down) echo "ssh: connect to host down port 22: No route to host" >&2; exit 255;;\n'
                       'silent) exit 255;; esac\nexec sh -c "$2"\n')
    program.chmod(0o755)
    return str(program)


def test_commands_run_there_word_by_word(ssh: str) -> None:
    host = SshHost("me@box", ssh)
    assert host.run(("printf", "%s|", "a b", "$HOME", "it's", "")) == "a b|$HOME|it's||"
    assert host.run(("false",)) is None
    assert host.run(("no-such-program-anywhere",)) is None


def test_files_are_read_there(ssh: str, tmp_path: Path) -> None:
    file = tmp_path / "a file; rm"
    file.write_text("16\n")
    host = SshHost("box", ssh)
    assert host.read(str(file)) == "16\n"
    assert host.read(str(tmp_path / "none")) is None


def test_a_machine_out_of_reach_is_named_with_the_reason(ssh: str) -> None:
    with pytest.raises(ProbeFailed, match="ssh does not reach down: ssh: connect to host down port 22") as caught:
        SshHost("down", ssh).run(("true",))
    assert caught.value.remedy == "try: ssh -o BatchMode=yes down true"
    with pytest.raises(ProbeFailed, match="ssh does not reach silent: it said nothing"):
        SshHost("silent", ssh).read("/etc/hostname")


def test_no_ssh_program(tmp_path: Path) -> None:
    with pytest.raises(ProbeFailed, match="ssh cannot be started"):
        SshHost("box", str(tmp_path / "none")).run(("true",))


def test_a_command_that_takes_too_long(ssh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rooftop.hardware.ssh._CONNECT_S", 0)
    assert SshHost("box", ssh).run(("sleep", "5"), timeout_s=0.05) is None


@pytest.mark.parametrize("target", ["", "-oProxyCommand=x", "two words", "a\nb"])
def test_no_option_passes_as_a_machine(target: str) -> None:
    with pytest.raises(BadInput, match="no machine that ssh could reach"):
        SshHost(target)
