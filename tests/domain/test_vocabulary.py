"""The closed list of facts: what it refuses, what counts as the same."""

import pytest

from rooftop.domain.launch import Evidence, Fact
from rooftop.domain.vocabulary import ERRORS, FACTS, LEVELS, same, state, stops, strongest


def test_state_takes_what_is_in_the_list() -> None:
    said = state("memory.weights_gib", 3, "built", "log", 7, "took 3 GiB")
    assert said == Evidence("memory.weights_gib", 3.0, "built", "log", 7, "took 3 GiB")
    assert isinstance(said.value, float)


@pytest.mark.parametrize(("fact", "value", "level", "words"), [
    ("layout.xp", 1, "built", "no fact"),
    ("layout.tp", 1, "used", "cannot be used"),
    ("layout.tp", "two", "built", "must be int"),
    ("layout.tp", True, "built", "must be int"),
    ("prefix_cache.enabled", 1, "built", "must be bool"),
    ("kv.dtype", "fp7", "built", "one of auto"),
])
def test_state_refuses_all_else(fact: str, value: Fact, level: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        state(fact, value, level, "log", 1, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(("fact", "one", "other", "equal"), [
    ("attention.backend", "TritonMLABackend", "triton_mla", True),
    ("attention.backend", "Flash Attention", "flash_attn", True),
    ("attention.backend", "AttentionBackendEnum.FLASH_ATTN", "flash_attn", True),
    ("attention.backend", "flash_attn", "flashinfer", False),
    ("moe.a2a_backend", "AgRsAll2AllManager", "agrs", True),
    ("layout.ranks_seen", "pp1 tp1", "pp1tp1", False),
    ("layout.tp", 2, 2, True), ("layout.tp", 2, 3, False),
    ("memory.weights_gib", 14.98, 15.0, True), ("memory.weights_gib", 14.0, 15.0, False),
    ("live.kv_usage", 0.0, 0.0, True), ("kv.tokens", 10000, 10001, False),
    ("allreduce.custom", False, 0, False), ("allreduce.custom", False, False, True),
])
def test_same(fact: str, one: Fact, other: Fact, equal: bool) -> None:
    assert same(fact, one, other) is equal
    assert same(fact, other, one) is equal


def test_strongest_is_the_highest_level_and_of_these_the_last() -> None:
    said = (state("layout.tp", 4, "built", "log", 1, "a"), state("layout.tp", 2, "resolved", "log", 2, "b"),
            state("kv.dtype", "auto", "resolved", "log", 3, "c"), state("kv.dtype", "fp8", "resolved", "log", 4, "d"))
    best = strongest(said)
    assert (best["layout.tp"].value, best["kv.dtype"].value) == (4, "fp8")


def test_the_list_is_whole() -> None:
    assert len(FACTS) == 70
    assert len(ERRORS) == 41
    for name, term in FACTS.items():
        assert term.levels == tuple(level for level in LEVELS if level in term.levels), name
        assert bool(term.allowed) == (term.kind == "enum"), name
        assert term.meaning
    assert stops("oom_kv")
    assert stops("hang_after_ready")
    assert not stops("slow_start")
    assert not stops("compile_in_progress_not_hang")
