"""What prompts say: seeded token ids or words, no two sequences alike at the start."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from random import Random

from rooftop.load.tokenizer import Tokenizer

TRIES = 16
SPOT = 16

Content = tuple[str | list[int], int]
"""A prompt as it goes into a request, and its length in tokens (of words where there is no tokenizer)."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Seeded sequences of places in an alphabet.

    Any two sequences of one salt differ at the start, so that no prefix cache can know one from another: sequence n
    begins with two digits of n in a shuffled alphabet.  In an alphabet of P items the first P sequences differ in
    their first item, and the first P * P in their first two.
    """

    seed: int
    salt: str = ""

    def unique(self, number: int, size: int, length: int) -> list[int]:
        """`length` places in an alphabet of `size` for sequence `number`."""
        order = _shuffled(f"{self.seed}/{self.salt}", size)
        start = [order[number % size], order[(number // size + number + 1) % size]]
        rest = Random(f"{self.seed}/{self.salt}/{number}").choices(range(size), k=max(length - 2, 0))
        return [*start, *rest][:length]

    def shared(self, size: int, length: int) -> list[int]:
        """`length` places that are the same for every number and every salt."""
        return Random(f"{self.seed} shared").choices(range(size), k=length)


@cache
def _shuffled(key: str, size: int) -> list[int]:
    return Random(key).sample(range(size), size)


def write_ids(alphabet: Sequence[int], draw: Draw, length: int, shared: int, numbers: Sequence[int]) -> list[Content]:
    """Prompts of `length` token ids of the alphabet, of which the first `shared` are the same."""
    size = len(alphabet)
    head = [alphabet[place] for place in draw.shared(size, shared)]
    return [(head + [alphabet[place] for place in draw.unique(number, size, length - shared)], length)
            for number in numbers]


def write_words(words: Sequence[str], draw: Draw, length: int, shared: int, numbers: Sequence[int]) -> list[Content]:
    """Prompts of `length` words, of which the first `shared` are the same."""
    size = len(words)
    head = draw.shared(size, shared)
    return [(_text(words, head + draw.unique(number, size, length - shared)), length) for number in numbers]


def write_texts(words: Sequence[str], tokenizer: Tokenizer, draw: Draw, length: int, shared: int,
                numbers: Sequence[int]) -> list[Content]:
    """Prompts of `length` tokens by the tokenizer, of which the first `shared` are the same.

    One prompt in SPOT is counted.  Only where the words of all these add up to the length, the others are taken as
    they are; else each is counted and corrected.  Where a length cannot be met in a few tries, the nearest text comes
    back with its true count.
    """
    size = len(words)

    def write_head(count: int, attempt: int) -> str:
        return _text(words, draw.shared(size, count), attempt)

    def write_whole(number: int, count: int, attempt: int) -> str:
        return head + _text(words, draw.unique(number, size, count), attempt)

    head = fit(tokenizer, shared, shared, [write_head])[0][0] + " " if shared else ""
    plain = [write_whole(number, length - shared, 0) for number in numbers]
    if all(len(ids) == length for ids in tokenizer.encode(plain[::SPOT])):
        return [(text, length) for text in plain]
    return list(fit(tokenizer, length, length - shared, [partial(write_whole, number) for number in numbers]))


def fit(tokenizer: Tokenizer, goal: int, size: int,
        writers: Sequence[Callable[[int, int], str]]) -> list[tuple[str, int]]:
    """From each writer the text of `goal` tokens, and its true count.

    A writer makes a text of a number of words, `size` at first; tokens of joined words do not add up, so each text is
    counted, made longer or shorter by what it misses, and counted again, each time with another last word.  No text is
    longer than two words a token, whatever the tokenizer says.
    """
    sizes = [size] * len(writers)
    found = [("", 0)] * len(writers)
    wrong = list(range(len(writers)))
    for attempt in range(TRIES):
        texts = [writers[place](sizes[place], attempt) for place in wrong]
        for place, text, ids in zip(wrong, texts, tokenizer.encode(texts), strict=True):
            miss = goal - len(ids)
            if not found[place][0] or abs(miss) < abs(goal - found[place][1]):
                found[place] = (text, len(ids))
            longer = sizes[place] + round(miss * len(text.split()) / max(1, len(ids)))
            sizes[place] = max(1, min(longer, 2 * goal + TRIES))
        wrong = [place for place in wrong if found[place][1] != goal]
        if not wrong:
            break
    return found


@cache
def single_words(tokenizer: Tokenizer, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words that are one token each when they stand alone."""
    return tuple(word for word, ids in zip(words, tokenizer.encode(words), strict=True) if len(ids) == 1)


def _text(words: Sequence[str], places: Sequence[int], attempt: int = 0) -> str:
    """The words at these places, the last one moved on by `attempt`; the first two stay, as they make it unique."""
    chosen = [words[place] for place in places]
    if len(chosen) > 2:
        chosen[-1] = words[(places[-1] + attempt) % len(words)]
    return " ".join(chosen)
