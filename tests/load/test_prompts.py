import builtins
import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rooftop.domain.workload import Workload
from rooftop.errors import BadInput, MissingPart, ServerRefused
from rooftop.load.contents import single_words
from rooftop.load.job import Prompt, Target
from rooftop.load.prompts import make_prompts
from rooftop.load.target import probe
from rooftop.load.words import WORDS
from tests.load.tiny import Tiny, said, serving

LENGTHS = [1, 2, 3, 8, 31, 128, 900]
DOUBLE = frozenset(WORDS[::5])
TRIPLE = frozenset(WORDS[1::7])


def made(tiny: Tiny, workload: Workload, count: int = 20, *, salt: str = "",
         tokenizer: str = "") -> tuple[list[Any], tuple[Prompt, ...], tuple[str, ...]]:
    """Bodies, prompts and notes from a probe of `tiny`; the server goes on to count in `length`."""
    single_words.cache_clear()  # another test's server may have had this port
    with serving(tiny):
        target = probe([tiny.url], api=workload.api)
        lazy, notes = make_prompts(target, workload, count, tokenizer=tokenizer, seed_salt=salt)
        prompts = tuple(lazy)
    return [json.loads(prompt.body) for prompt in prompts], prompts, notes


def length(tiny: Tiny, body: Any) -> int:
    """How many tokens the server would count in a prompt."""
    if "messages" in body:
        return len(tiny.encode(body["messages"][0]["content"])) + tiny.begin + tiny.template
    return len(body["prompt"]) if isinstance(body["prompt"], list) else len(tiny.encode(body["prompt"])) + tiny.begin


@pytest.mark.parametrize("asked", LENGTHS)
def test_completions_are_token_ids(asked: int) -> None:
    tiny = Tiny(double=DOUBLE, triple=TRIPLE)
    bodies, prompts, notes = made(tiny, Workload(input_tokens=asked, output_tokens=9, api="completions"))
    assert notes == ()
    assert [length(tiny, body) for body in bodies] == [asked] * 20
    assert {prompt.input_tokens for prompt in prompts} == {asked}
    assert {prompt.output_tokens for prompt in prompts} == {9}
    known = set(tiny.encode(" ".join(WORDS)))
    assert all(set(body["prompt"]) <= known for body in bodies)
    assert len({body["prompt"][0] for body in bodies}) == 20


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("asked", [8, 9, 31, 128, 900])
def test_texts_have_the_length_that_the_server_counts(asked: int, api: Any) -> None:
    tiny = Tiny(takes_ids=False, double=DOUBLE, triple=TRIPLE, template=6, begin=1)
    bodies, prompts, notes = made(tiny, Workload(input_tokens=asked, output_tokens=9, api=api))
    assert notes == ()
    assert [length(tiny, body) for body in bodies] == [asked] * 20
    assert {prompt.input_tokens for prompt in prompts} == {asked}
    texts = [body["messages"][0]["content"] if api == "chat" else body["prompt"] for body in bodies]
    assert len({text.split()[0] for text in texts}) == 20


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_tokenizer_that_knows_few_words(api: Any) -> None:
    tiny = Tiny(takes_ids=False, triple=frozenset(WORDS[40:]))
    bodies, prompts, _ = made(tiny, Workload(input_tokens=101, api=api))
    counted = [length(tiny, body) for body in bodies]
    assert counted == [prompt.input_tokens for prompt in prompts]
    assert all(abs(count - 101) <= 1 for count in counted)
    assert 101 in counted


def test_a_chat_prompt_shorter_than_its_template() -> None:
    with pytest.raises(BadInput, match="itself adds 7 tokens") as caught:
        made(Tiny(), Workload(input_tokens=7))
    assert "at least 8" in caught.value.remedy
    bodies, _, _ = made(Tiny(), Workload(input_tokens=8), 1)
    assert len(bodies[0]["messages"][0]["content"].split()) == 1


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_shared_prefix(api: Any) -> None:
    for tiny in (Tiny(), Tiny(takes_ids=False), Tiny(tokenizes="")):
        bodies, _, _ = made(tiny, Workload(input_tokens=60, shared_prefix_tokens=20, api=api))
        contents = [body["messages"][0]["content"].split() if api == "chat" else body["prompt"] for body in bodies]
        contents = [words.split() if isinstance(words, str) else words for words in contents]
        assert len({tuple(words[:20]) for words in contents}) == 1
        assert len({words[20] for words in contents}) == 20
        assert {length(tiny, body) for body in bodies} == {60}


def test_the_prefix_stays_when_the_salt_changes() -> None:
    workload = Workload(input_tokens=60, shared_prefix_tokens=20, api="completions")
    (one,), _, _ = made(Tiny(), workload, 1, salt="a")
    (two,), _, _ = made(Tiny(), workload, 1, salt="b")
    assert one["prompt"][:20] == two["prompt"][:20]
    assert one["prompt"][20:] != two["prompt"][20:]


def test_prompts_depend_on_seed_number_and_salt_only() -> None:
    workload = Workload(input_tokens=30, api="completions")
    first, _, _ = made(Tiny(), workload, 30)
    again, _, _ = made(Tiny(), workload, 50)
    assert again[:30] == first
    for other in (made(Tiny(), replace(workload, seed=1), 30)[0], made(Tiny(), workload, 30, salt="b")[0]):
        assert not {json.dumps(body) for body in other} & {json.dumps(body) for body in first}


def test_all_prompts_of_a_long_level_differ() -> None:
    bodies, _, _ = made(Tiny(), Workload(input_tokens=16, api="completions"), 3000)
    starts = Counter(tuple(body["prompt"][:2]) for body in bodies)
    assert max(starts.values()) == 1


def test_prompts_are_made_when_they_are_asked_for() -> None:
    workload = Workload(input_tokens=30, api="chat")
    with serving(Tiny()) as tiny:
        target = probe([tiny.url], api="chat")
        few, many = (make_prompts(target, workload, count)[0] for count in (150, 10**12))
        assert tuple(islice(many, 150)) == tuple(few)
        assert len(set(islice(many, 100))) == 100


def test_without_tokenizer_lengths_follow_the_usage() -> None:
    tiny = Tiny(tokenizes="", template=9)
    bodies, prompts, notes = made(tiny, Workload(input_tokens=100))
    assert {prompt.input_tokens for prompt in prompts} == {None}
    assert "approximate, at 1.00 tokens a word" in notes[0]
    assert "--tokenizer" in notes[0]
    assert {length(tiny, body) for body in bodies} == {100}


def test_without_tokenizer_and_usage_one_word_is_a_token() -> None:
    bodies, prompts, notes = made(Tiny(tokenizes="", usage=False), Workload(input_tokens=100, api="completions"))
    assert {len(body["prompt"].split()) for body in bodies} == {100}
    assert prompts[0].input_tokens is None
    assert "one token a word" in notes[0]


def test_without_usage_a_text_bears_no_length() -> None:
    _, prompts, notes = made(Tiny(usage=False), Workload(input_tokens=100))
    assert prompts[0].input_tokens is None
    assert "reports no usage" in notes[0]


def test_token_ids_need_no_usage() -> None:
    _, prompts, notes = made(Tiny(usage=False), Workload(input_tokens=100, api="completions"))
    assert prompts[0].input_tokens == 100
    assert notes == ()


def test_lengths_that_cannot_be() -> None:
    target = Target(("http://127.0.0.1:1",), "m", max_model_len=2048)
    for workload, words in (
        (Workload(input_tokens=2000, output_tokens=49), r"are 2049 together; the server's limit is 2048"),
        (Workload(input_tokens=0), "input_tokens must be at least 1, not 0"),
        (Workload(output_tokens=0), "output_tokens must be at least 1"),
        (Workload(shared_prefix_tokens=-1), "at least 0"),
        (Workload(input_tokens=5, shared_prefix_tokens=6), "shared_prefix_tokens .6. is more than"),
    ):
        with pytest.raises(BadInput, match=words):
            make_prompts(target, workload, 1)
    with pytest.raises(BadInput, match="leaves 93"):
        made(Tiny(), Workload(input_tokens=100, shared_prefix_tokens=94))


def test_the_body_fixes_the_reply_length_where_the_server_lets_it() -> None:
    (body,), _, notes = made(Tiny(), Workload(input_tokens=9, output_tokens=33), 1)
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"], body["temperature"]) == (33, 33, True, 0)
    assert notes == ()
    (body,), _, notes = made(Tiny(), Workload(input_tokens=9, output_tokens=33, natural=True), 1)
    assert not {"min_tokens", "ignore_eos"} & set(body)
    assert notes == ()
    strict = Tiny(refuses=("ignore_eos", "min_tokens"))
    (body,), _, notes = made(strict, Workload(input_tokens=9, output_tokens=33), 1)
    assert not {"min_tokens", "ignore_eos"} & set(body)
    assert notes == ("the server takes neither ignore_eos nor min_tokens: replies may end early",)


def test_a_tokenizer_route_that_fails_later() -> None:
    with serving(Tiny()) as tiny:
        target = probe([tiny.url])
        tiny.pages["/tokenize"] = said(500, {"error": "busy"})
        with pytest.raises(ServerRefused, match="gave no token ids: HTTP 500: busy") as caught:
            make_prompts(target, Workload(), 1)
    assert "--tokenizer" in caught.value.remedy


def local(folder: Path, words: tuple[str, ...] = WORDS) -> str:
    """A tokenizer.json of one token a word, with settings for training that must not matter here."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: number * 4 for number, word in enumerate(words)} | {"[UNK]": 9999}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.enable_truncation(12)
    inner.enable_padding(length=10)
    inner.save(str(folder / "tokenizer.json"))
    return str(folder)


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_local_tokenizer(tmp_path: Path, api: Any) -> None:
    for path in (local(tmp_path), str(tmp_path / "tokenizer.json")):
        tiny = Tiny(tokenizes="")
        bodies, prompts, notes = made(tiny, Workload(input_tokens=100, api=api), tokenizer=path)
        assert notes == ()
        assert {length(tiny, body) for body in bodies} == {100}
        assert {prompt.input_tokens for prompt in prompts} == {100}


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_local_tokenizer_of_another_model(tmp_path: Path, api: Any) -> None:
    tiny = Tiny(triple=frozenset(WORDS[::2]))
    _, prompts, notes = made(tiny, Workload(input_tokens=100, api=api), tokenizer=local(tmp_path))
    assert "is the tokenizer the model's own?" in notes[0]
    assert {prompt.input_tokens for prompt in prompts} == {None}


@pytest.mark.parametrize(("content", "words"), [(None, "no readable tokenizer.json"), ("{", "not JSON"),
                                                ("[]", "no tokenizer"), ('{"model": 1}', "no tokenizer")])
def test_a_tokenizer_that_is_none(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(BadInput, match=words) as caught:
        make_prompts(Target(("http://127.0.0.1:1",), "m"), Workload(), 1, tokenizer=str(tmp_path))
    assert caught.value.where.endswith("tokenizer.json")


def test_a_local_tokenizer_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "tokenizers":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingPart) as caught:
        make_prompts(Target(("http://127.0.0.1:1",), "m"), Workload(), 1, tokenizer=str(tmp_path))
    assert "pip install 'rooftop[tokenizer]'" in caught.value.remedy


@pytest.mark.parametrize("answer", [[1], [1, -5, 10**20]])
def test_a_tokenizer_that_lies_makes_no_endless_text(answer: list[int]) -> None:
    tiny = Tiny(takes_ids=False, pages={"/tokenize": said(200, {"tokens": answer})})
    _, prompts, notes = made(tiny, Workload(input_tokens=100, api="chat"), 4)
    assert max(len(prompt.body) for prompt in prompts) < 10_000
    assert any("approximate" in note or "tokens long" in note for note in notes)
