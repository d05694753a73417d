"""Feed mangled answers to the stream parser: no crash, the same events whatever the split.

    python benchmarks/fuzz.py [--minutes 10] [--cases 10000000] [--seed 0]

Answers of the true-timing server's script in all dialects are cut, spliced, repeated and bitten; each is read whole and
in random reads, by the fast path and by the exact one, and all readings must agree.
"""

import argparse
import random
import time
from itertools import pairwise
from typing import Any

from rooftop.domain.trial import Reply
from rooftop.load.reply import Taken, read_reply
from rooftop.load.script import Script, answer

PATHS = ("/v1/chat/completions", "/v1/completions", "/generate")
CHOICES: dict[str, tuple[Any, ...]] = {
    "tokens_per_chunk": (1, 1, 2, 5), "first": (0, 3), "pieces": (1, 1, 3, 7), "burst": (1, 1, 4),
    "usage": ("last", "each", "none"), "role": ("early", "first", "none"), "token_ids": (False, False, True),
    "field": ("content", "content", "reasoning_content", "tool_calls"), "done": (True, True, False),
    "finish": (True, True, False), "crlf": (False, False, True), "space": (True, True, False),
    "comments": (False, False, True), "packed": ("", "", "", "gzip", "deflate"),
    "framing": ("chunked", "chunked", "close"),
    "status": (200, 200, 200, 200, 200, 429), "kind": ("stream", "stream", "stream", "stream", "html", "json"),
    "error_after": (None, None, None, 2),
}
BITES = (b"\n", b"\r\n", b"\r", b"\n\n", b'"', b"\\", b"data: ", b"data:", b": x\n\n", b"0\r\n\r\n", b"[DONE]", b"\x00",
         b"\xff", b"{", b"}", b"event: error\n", b"ffffffff\r\n", b"null")


def mangle(raw: bytes, dice: random.Random) -> bytes:
    for _ in range(dice.choice((0, 0, 0, 1, 1, 2, 5))):
        begin, end = sorted((dice.randrange(len(raw) + 1), dice.randrange(len(raw) + 1)))
        kind = dice.randrange(5)
        if kind == 0:
            raw = raw[:begin]
        elif kind == 1:
            raw = raw[:begin] + dice.choice(BITES) + raw[begin:]
        elif kind == 2:
            raw = raw[:begin] + raw[min(end, begin + 40):]
        elif kind == 3:
            raw = raw[:begin] + raw[begin:end] + raw[begin:]
        elif raw:
            place = min(begin, len(raw) - 1)
            raw = raw[:place] + bytes([dice.randrange(256)]) + raw[place + 1:]
    return raw or b"x"


def read(raw: bytes, cuts: list[int], broken: str, *, fast: bool) -> Reply:
    sizes = [after - before for before, after in pairwise([0, *cuts, len(raw)])]
    taken = Taken(0, 0, 0, raw, sizes, range(len(sizes)), len(sizes), broken=broken, asked_output_tokens=9)
    return read_reply(taken, fast=fast, keep_text=True)


def meaning(reply: Reply) -> tuple[Any, ...]:
    """All that must not depend on the split."""
    return (len(reply.chunk_ns), reply.chunk_tokens, reply.prompt_tokens, reply.output_tokens, reply.cached_tokens,
            reply.count_source, reply.finish, reply.error, reply.detail, reply.text)


def case(dice: random.Random) -> None:
    script = Script(**{name: dice.choice(values) for name, values in CHOICES.items()})
    body = {"model": "truth", "max_tokens": dice.randrange(1, 12)}
    raw = mangle(b"".join(step.data for step in answer(script, dice.choice(PATHS), {}, body)), dice)
    broken = dice.choice(("", "eof"))
    whole, exact = (read(raw, [], broken, fast=fast) for fast in (True, False))
    assert whole == exact, raw
    cuts = sorted(dice.sample(range(1, len(raw)), min(len(raw) - 1, dice.randrange(12)))) if len(raw) > 1 else []
    split, split_exact = (read(raw, cuts, broken, fast=fast) for fast in (True, False))
    assert split == split_exact, (raw, cuts)
    assert meaning(split) == meaning(whole), (raw, cuts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--cases", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    end = time.monotonic() + asked.minutes * 60
    for number in range(asked.cases):
        dice = random.Random(f"{asked.seed}-{number}")
        try:
            case(dice)
        except BaseException:
            print(f"case {number} of seed {asked.seed}")
            raise
        if number % 1000 == 0 and time.monotonic() > end:
            break
    print(f"{number + 1} cases, all readings agree")


if __name__ == "__main__":
    main()
