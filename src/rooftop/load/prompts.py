"""Makes request bodies with prompts of an exact token length, no two alike."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rooftop.domain.workload import Workload
from rooftop.errors import BadInput, ServerRefused
from rooftop.load import http
from rooftop.load.contents import Content, Draw, single_words, write_ids, write_texts, write_words
from rooftop.load.job import Prompt, Target
from rooftop.load.target import ask, request
from rooftop.load.tokenizer import Tokenizer, open_tokenizer
from rooftop.load.words import WORDS

BATCH = 64
SHORT, LONG = 8, 40
FEW_WORDS = 64


@dataclass(frozen=True, slots=True)
class Source:
    """All prompts of a level, made when they are asked for; prompt n is the same whenever that is.

    write: contents of the prompts with these numbers.  added_tokens: what the server adds to each of them (chat
    template, begin token).  exact: the server has confirmed how it counts; otherwise prompts bear no length.
    """

    target: Target
    workload: Workload
    write: Callable[[Sequence[int]], list[Content]]
    added_tokens: int = 0
    exact: bool = True
    notes: tuple[str, ...] = ()

    def take(self, start: int, count: int) -> tuple[Prompt, ...]:
        """Prompts number `start` to `start + count - 1`."""
        output, natural = self.workload.output_tokens, self.workload.natural
        prompts = []
        for content, tokens in self.write(range(start, start + count)):
            body = json.dumps(request(self.target, content, output, natural=natural)).encode()
            prompts.append(Prompt(body, tokens + self.added_tokens if self.exact else None, output))
        return tuple(prompts)


def make_prompts(target: Target, workload: Workload, count: int, *, tokenizer: str = "",
                 seed_salt: str = "") -> tuple[Iterator[Prompt], tuple[str, ...]]:
    """`count` prompts for a level, made in batches as they are asked for, and notes on what is not exact about them.

    The server has been asked all that it is asked by then, but for a tokenizer of its own.  Arguments and errors as
    `open_source`; the server's tokenizer may also raise while prompts are made.
    """
    source = open_source(target, workload, tokenizer=tokenizer, seed_salt=seed_salt)
    return (prompt for start in range(0, count, BATCH)
            for prompt in source.take(start, min(BATCH, count - start))), source.notes


def open_source(target: Target, workload: Workload, *, tokenizer: str = "", seed_salt: str = "") -> Source:
    """The prompts of a level, after a few tiny requests have shown how the server counts.

    Completions, and SGLang's own route, get token ids where the server takes them (their number is the length,
    whatever the tokenizer does), else text.  A chat prompt is text; the tokens that the template adds are counted in.
    Without a tokenizer lengths are approximate, by words.  `tokenizer` is a tokenizer.json or the folder of one; ""
    takes the server's own route.
    Prompts depend on the workload's seed, their number and `seed_salt` only: give each level on one start of a server a
    salt of its own, or the server's prefix cache will know the prompts of the level before.  The first
    `shared_prefix_tokens` depend on the seed alone.  (A chat template's own first tokens are the same in all prompts.)

    Raises BadInput for lengths that cannot be, MissingPart for a tokenizer without its package, ServerUnreachable and
    ServerRefused.
    """
    _check_lengths(target, workload)
    draw = Draw(workload.seed, seed_salt)
    coder = open_tokenizer(target, tokenizer)
    with http.session(target) as server:
        if coder is None:
            return _open_words(server, target, workload, draw)
        if target.api in ("completions", "generate"):
            source = _open_ids(server, target, workload, draw, coder)
            if source is not None and (not tokenizer or _added(server, target, coder, WORDS)[1]):
                return source
        return _open_texts(server, target, workload, draw, coder)


def _check_lengths(target: Target, workload: Workload) -> None:
    asked, output, shared = workload.input_tokens, workload.output_tokens, workload.shared_prefix_tokens
    for name, value, least in (("input_tokens", asked, 1), ("output_tokens", output, 1),
                               ("shared_prefix_tokens", shared, 0)):
        if value < least:
            raise BadInput(f"{name} must be at least {least}, not {value}")
    if shared > asked:
        raise BadInput(f"shared_prefix_tokens ({shared}) is more than input_tokens ({asked})")
    limit = target.max_model_len
    if limit is not None and asked + output > limit:
        raise BadInput(f"input_tokens ({asked}) and output_tokens ({output}) are {asked + output} together; "
                       f"the server's limit is {limit} tokens a request",
                       remedy="ask for shorter ones, or start the server with a longer context")


def _notes(target: Target, workload: Workload, *more: str) -> tuple[str, ...]:
    if workload.natural or target.ignore_eos or target.min_tokens:
        return more
    return (*more, "the server takes neither ignore_eos nor min_tokens: replies may end early")


def _open_ids(server: http.Session, target: Target, workload: Workload, draw: Draw, coder: Tokenizer) -> Source | None:
    """Prompts of token ids, None where the server does not take them or counts them otherwise.

    The ids are those of common words, so none is special and all decode to plain text.
    """
    alphabet = list(dict.fromkeys(coder.encode([" ".join(WORDS)])[0][1:]))
    try:
        seen = ask(server, target, alphabet[:LONG])
    except ServerRefused:
        return None
    if seen.prompt_tokens not in (None, len(alphabet[:LONG])):
        return None
    write = partial(write_ids, alphabet, draw, workload.input_tokens, workload.shared_prefix_tokens)
    return Source(target, workload, write, notes=_notes(target, workload))


def _open_texts(server: http.Session, target: Target, workload: Workload, draw: Draw, coder: Tokenizer) -> Source:
    """Prompts of text, counted by the tokenizer; the tokens that the server adds are counted in."""
    single = single_words(coder, WORDS)
    words = single if len(single) >= FEW_WORDS else WORDS
    added, exact, notes = _added(server, target, coder, words)
    length, shared = workload.input_tokens - added, workload.shared_prefix_tokens
    if length < 1:
        raise BadInput(f"input_tokens ({workload.input_tokens}) is too small: the server itself adds {added} tokens",
                       remedy=f"ask for at least {added + 1} input tokens, or use the completions API")
    if shared > length:
        raise BadInput(f"shared_prefix_tokens ({shared}) is too much: the server itself adds {added} tokens to the "
                       f"prompt, which leaves {length}")
    write = partial(write_texts, words, coder, draw, length, shared)
    return Source(target, workload, write, added, exact, _notes(target, workload, *notes))


def _added(server: http.Session, target: Target, coder: Tokenizer,
           words: Sequence[str]) -> tuple[int, bool, tuple[str, ...]]:
    """How many tokens the server counts above the tokenizer's, whether two lengths agree on it, and notes if not."""
    texts = [" ".join(words[:SHORT]), " ".join(words[-LONG:])]
    counts = [len(ids) for ids in coder.encode(texts)]
    seen = [ask(server, target, text).prompt_tokens for text in texts]
    if seen[0] is None or seen[1] is None:
        return 0, False, ("prompt lengths are approximate: the server reports no usage, so the tokens it adds to a "
                          "prompt are not known",)
    added = [seen[0] - counts[0], seen[1] - counts[1]]
    if added[0] == added[1] >= 0:
        return added[0], True, ()
    return max(added[0], 0), False, (
        f"prompt lengths are approximate: for texts of {counts[0]} and {counts[1]} tokens the server counts {seen[0]} "
        f"and {seen[1]}; is the tokenizer the model's own?",)


def _open_words(server: http.Session, target: Target, workload: Workload, draw: Draw) -> Source:
    """Prompts of words, their number from how the server counted two texts."""
    texts = [" ".join(WORDS[:SHORT]), " ".join(WORDS[-LONG:])]
    seen = [ask(server, target, text).prompt_tokens for text in texts]
    remedy = "give the model's tokenizer with --tokenizer to make them exact"
    if seen[0] is None or seen[1] is None or seen[1] <= seen[0]:
        added, per_word = 0.0, 1.0
        note = f"prompt lengths are approximate, at one token a word: there is no tokenizer and no usage; {remedy}"
    else:
        per_word = (seen[1] - seen[0]) / (LONG - SHORT)
        added = max(seen[0] - SHORT * per_word, 0.0)
        note = (f"prompt lengths are approximate, at {per_word:.2f} tokens a word as the server counts: there is no "
                f"tokenizer; {remedy}")
    shared = round(workload.shared_prefix_tokens / per_word)
    length = max(round((workload.input_tokens - added) / per_word), shared, 1)
    write = partial(write_words, WORDS, draw, length, shared)
    return Source(target, workload, write, exact=False, notes=_notes(target, workload, note))
