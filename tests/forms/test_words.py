"""Words, quotes and places: the shell's, systemd's and YAML's, read and written."""

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rooftop.errors import BadInput
from rooftop.forms._text import resolve, spell, whole
from rooftop.forms._words import commands

WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), min_size=1, max_size=5)
LINE = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=12)


def values(text: str, style: str = "shell") -> list[list[str]]:
    return [[word.value for word in command] for command in commands(whole(text), style)]


@given(WORDS)
def test_what_shlex_joins_is_split_again(words: list[str]) -> None:
    text = shlex.join(words)
    (command,) = commands(whole(text), "shell")
    assert [word.value for word in command] == words
    assert [text[word.start:word.end] for word in command] == [word.raw for word in command]


@pytest.mark.parametrize(("text", "wanted"), [
    ("a b", [["a", "b"]]),
    ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
    ("a \\\n  b\nc", [["a", "b"], ["c"]]),
    ("a --x=y\\\n --z", [["a", "--x=y", "--z"]]),
    ("a && b || c; d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
    ("a > log 2>&1 b >> c &> d", [["a", "b"]]),
    ("a # b\nc", [["a"], ["c"]]),
    ("a#b", [["a#b"]]),
    ("cat <<EOF\nvllm serve\nEOF\nb", [["cat"], ["b"]]),
    ("cat <<'E' > f\nx\nE\nb", [["cat"], ["b"]]),
    ("A=(\n 1 # one\n 2\n)\nrun \"${A[@]}\" 3", [["run", "1", "2", "3"]]),
    ("a $(b c) ${D:-e f}", [["a", "$(b c)", "${D:-e f}"]]),
    ("a \"x $(b \"c\") y\"", [["a", "x $(b \"c\") y"]]),
    ("a 'never closed", [["a", "never closed"]]),
    ("a \\", [["a", "\\"]]),
    ("", []),
])
def test_shell(text: str, wanted: list[list[str]]) -> None:
    assert values(text) == wanted


@pytest.mark.parametrize(("text", "wanted"), [
    ("/bin/a --x 'y z' \"w\\\"v\" \\\n  b", [["/bin/a", "--x", "y z", 'w"v', "b"]]),
    ("a ; b", [["a"], ["b"]]),
    ("a;b # c", [["a;b", "#", "c"]]),
    ("a\\x20 b\\s", [["ax20", "b "]]),
])
def test_systemd(text: str, wanted: list[list[str]]) -> None:
    assert values(text, "systemd") == wanted


def test_compose_knows_no_operators() -> None:
    assert values("a | b > c # d\ne", "compose") == [["a", "|", "b", ">", "c", "#", "d", "e"]]


@pytest.mark.parametrize(("text", "wanted"), [
    ("plain", "plain"), ("'$A'", "$A"), ("$A", "1"), ("${A}b", "1b"), ("\"$A\"", "1"), ("${B:-2}", "2"),
    ("${A:-2}", "1"), ("$B", None), ("$(nproc)", None), ("`nproc`", None), ("$(A)", "1"), ("x${A}y$B", None),
])
def test_variables(text: str, wanted: str | None) -> None:
    ((word,),) = commands(whole(text), "shell")
    assert resolve(word, {"A": "1"}) == wanted


@pytest.mark.parametrize("style", ["shell", "systemd"])
@pytest.mark.parametrize("like", ["a", "'a'", '"a"', "--x='a'", '--x="a"', "--x=a"])
@example(value="%%")
@given(value=LINE)
def test_a_value_is_spelled_as_it_is_read(style: str, like: str, value: str) -> None:
    ((word,),) = commands(whole(like), style)
    told = f"--x={value}" if "=" in like else value
    ((again,),) = commands(whole(spell(told, word)), style)
    unescaped = again.value.replace("%%", "%").replace("$$", "$") if style == "systemd" else again.value
    assert unescaped == told


def test_a_plain_yaml_scalar_does_not_hold_everything() -> None:
    ((word,),) = commands(whole("a", wraps=("plain",)), "compose")
    assert spell("b c", word) == "'b c'"
    with pytest.raises(BadInput, match="cannot be written between the quotes"):
        spell('{"a": 1}', word)
