from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop.load.contents import Draw, fit, write_ids, write_texts, write_words
from rooftop.load.words import WORDS

SIZES = st.integers(2, 40)


class Letters:
    """A tokenizer of one token a letter pair, so that words have from 1 to 5 tokens and odd sums occur."""

    def __init__(self) -> None:
        self.counted = 0

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        self.counted += len(texts)
        return [[0] * sum((len(word) + 1) // 2 for word in text.split()) for text in texts]


class Single:
    """A tokenizer that knows every word."""

    def __init__(self) -> None:
        self.counted = 0

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        self.counted += len(texts)
        return [[WORDS.index(word) for word in text.split()] for text in texts]


@given(st.integers(), st.text(max_size=4), SIZES, st.data())
def test_any_two_differ_within_two_items(seed: int, salt: str, size: int, data: st.DataObject) -> None:
    one = data.draw(st.integers(0, size * size - 1))
    two = data.draw(st.integers(0, size * size - 1).filter(lambda number: number != one))
    first, second = (Draw(seed, salt).unique(number, size, 8) for number in (one, two))
    assert first[:2] != second[:2]
    if one // size == two // size:
        assert first[0] != second[0]


@given(st.integers(0, 10**6), SIZES, st.integers(0, 30))
def test_a_sequence_has_its_length_and_its_beginning(number: int, size: int, length: int) -> None:
    draw = Draw(7, "a")
    places = draw.unique(number, size, length)
    assert len(places) == length
    assert set(places) <= set(range(size))
    assert draw.unique(number, size, 31)[:length] == places
    assert draw.shared(size, 31)[:length] == draw.shared(size, length)


def test_sequences_are_the_same_everywhere() -> None:
    assert Draw(0).unique(0, len(WORDS), 4) == [53, 550, 579, 42]
    assert Draw(0).shared(len(WORDS), 3) == [236, 556, 587]


def test_salt_and_seed_make_other_sequences() -> None:
    made = {tuple(Draw(seed, salt).unique(0, 500, 20)) for seed in range(3) for salt in ("", "a", "b")}
    assert len(made) == 9
    assert Draw(1, "a").shared(500, 9) == Draw(1, "b").shared(500, 9) != Draw(2, "a").shared(500, 9)


def test_words_are_plain_and_distinct() -> None:
    assert len(set(WORDS)) == len(WORDS) > 500
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


@given(st.integers(1, 60), st.integers(0, 60))
def test_ids_have_their_length_and_their_head(length: int, shared: int) -> None:
    shared = min(shared, length)
    made = [content for content, _ in write_ids(range(100, 150), Draw(3), length, shared, range(5))]
    assert all(isinstance(ids, list) and len(ids) == length for ids in made)
    assert len({tuple(ids[:shared]) for ids in made}) == 1
    assert len({tuple(ids[shared:shared + 1]) for ids in made}) == (5 if shared < length else 1)


def test_words_have_their_length_and_their_head() -> None:
    made = [str(content).split() for content, _ in write_words(WORDS, Draw(3), 20, 5, range(4))]
    assert [len(words) for words in made] == [20] * 4
    assert len({tuple(words[:5]) for words in made}) == 1
    assert len({words[5] for words in made}) == 4


@settings(max_examples=30, deadline=None)
@given(st.integers(30, 200), st.integers(0, 8))
def test_texts_are_fitted_to_their_tokens(length: int, shared: int) -> None:
    tokenizer = Letters()
    made = write_texts(WORDS, tokenizer, Draw(5), length, shared, range(20))
    assert [tokens for _, tokens in made] == [len(ids) for ids in tokenizer.encode([str(text) for text, _ in made])]
    exact = sum(tokens == length for _, tokens in made)
    assert exact >= 14
    assert all(abs(tokens - length) <= 2 for _, tokens in made)


def test_texts_of_known_words_are_spot_checked() -> None:
    tokenizer = Single()
    made = write_texts(WORDS, tokenizer, Draw(5), 50, 10, range(160))
    assert tokenizer.counted == 1 + 10
    assert {len(ids) for ids in tokenizer.encode([str(text) for text, _ in made])} == {50}
    assert len({str(text).split()[10] for text, _ in made}) == 160


def test_the_nearest_text_comes_back_where_none_fits() -> None:
    class Pairs:
        def encode(self, texts: Sequence[str]) -> list[list[int]]:
            return [[0, 0] * len(text.split()) for text in texts]

    ((text, tokens),) = fit(Pairs(), 7, 7, [lambda count, attempt: " ".join(["x"] * count)])
    assert (len(text.split()), tokens) in ((3, 6), (4, 8))
