"""One level: stored whole, its spool gone; what a killed rooftop left is taken in, once."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooftop.domain import codec
from rooftop.domain.launch import Claim, Fault
from rooftop.domain.progress import silent
from rooftop.domain.trial import Trial
from rooftop.domain.workload import Arrivals, Stop, Workload
from rooftop.errors import BadInput, ServerRefused, StoreFailed
from rooftop.load import level as levels
from rooftop.load.job import Job, Prompt, Target
from rooftop.load.script import Script
from rooftop.load.target import probe
from rooftop.load.truth import Truth
from rooftop.store import Store
from rooftop.workflows import run as room
from rooftop.workflows.run import Seen, Slot, locked, new_head, prompt_count, recover, run_level, spool_folder
from tests.stored import PLAN, launch

LOAD = Workload(Arrivals(concurrency=2), 16, 4, stop=Stop(requests=4), warmup=2)


@pytest.fixture
def server() -> Iterator[Truth]:
    with Truth(Script(ttft_s=0.001, itl_s=0.0005)) as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.sqlite") as opened:
        yield opened


def measured(server: Truth, store: Store, seen: Seen | None = None, load: Workload = LOAD) -> Trial:
    return run_level(probe((server.url,)), load, Slot(PLAN, launch(), "s", 3), store=store, tell=silent, seen=seen)


def test_prompts_of_another_length_are_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"model": "truth", "prompt": "a", "max_tokens": 4, "stream": true}'
    odd = [Prompt(body, tokens, 4) for tokens in (16, 16, 16, 15, None, 17)]
    monkeypatch.setattr(room.prompts, "make_prompts", lambda *_, **__: (iter(odd), ()))
    with Truth() as server:
        trial = run_level(Target((server.url,), "truth", "completions"), LOAD, Slot(PLAN), store=store, tell=silent)
    assert sum("2 of 4 prompts are not 16 tokens long" in note for note in trial.notes) == 1


def test_a_tokenizer_that_fails_on_the_way_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[Prompt]:
        yield Prompt(b"{}", 16, 4)
        raise ServerRefused("no more ids")

    monkeypatch.setattr(room.prompts, "make_prompts", lambda *_, **__: (broken(), ()))
    with Truth() as server, pytest.raises(ServerRefused, match="no more ids"):
        run_level(Target((server.url,), "truth", "completions"), LOAD, Slot(PLAN), store=store, tell=silent)
    assert spools(store) == []
    assert list(store.trials()) == []


def spools(store: Store) -> list[Path]:
    return sorted(spool_folder(store.path).iterdir())


def kept(server: Truth, store: Store, monkeypatch: pytest.MonkeyPatch, **fault: Fault) -> Path:
    """The spool of a level that ran and could not be stored."""
    def fail(*_: object, **__: object) -> None:
        raise StoreFailed("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "add_trial", fail)
        with pytest.raises(StoreFailed):
            measured(server, store)
    (spool,) = spools(store)
    return spool


def test_a_level_is_stored_whole(server: Truth, store: Store) -> None:
    claim = Claim("limits.max_running", 2, 2, True)
    trial = measured(server, store, Seen(claims=lambda: (claim,), death=lambda: pytest.fail("nothing failed")))
    assert list(store.trials()) == [trial]
    assert (trial.launch_id, trial.study, trial.repeat, trial.claims) == ("l", "s", 3, (claim,))
    assert (trial.plan, trial.workload, trial.origin, trial.fault) == (PLAN, LOAD, "measured", None)
    assert [reply.output_tokens for reply in trial.replies] == [4] * 4
    assert trial.measured_s > 0
    assert trial.client is not None
    assert spools(store) == []
    bodies = [served.body for served in server.log if served.body["max_tokens"] == 4][-6:]
    assert len({str(body["prompt"]) for body in bodies}) == 6


@pytest.mark.parametrize(("script", "cause", "reason"), [
    ({"cut_after": 4, "tokens": 4}, Fault("oom_kv", "no memory"), "no memory"),
    ({"reset_after": 4, "tokens": 5}, None, "reset"),
])
def test_a_level_whose_server_died_says_why(store: Store, monkeypatch: pytest.MonkeyPatch, script: dict[str, int],
                                            cause: Fault | None, reason: str) -> None:
    monkeypatch.setattr(room.prompts, "make_prompts", lambda *_, **__: (made(), ()))
    with Truth(Script(**script)) as server:  # type: ignore[arg-type]
        trial = run_level(Target((server.url,), "truth", "completions"), replace(LOAD, warmup=0), Slot(PLAN),
                          store=store, tell=silent, seen=Seen(death=lambda: cause))
    assert trial.fault is not None
    assert reason in trial.fault.reason
    assert not trial.valid


def made() -> tuple[levels.Prompt, ...]:
    body = b'{"model": "truth", "prompt": "a", "max_tokens": 4, "stream": true}'
    return (levels.Prompt(body, 1, 4),) * 4


def test_a_level_that_cannot_be_asked_for_leaves_nothing(server: Truth, store: Store) -> None:
    with pytest.raises(BadInput, match="limit"):
        measured(server, store, load=replace(LOAD, input_tokens=1 << 20))
    assert list(store.trials()) == []
    assert not spool_folder(store.path).exists()


def test_a_level_that_could_not_be_stored_is_taken_in_later(server: Truth, store: Store,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Claim("limits.max_running", 2, 2, True)
    store.add_launch(replace(launch(), claims=(claim,)))
    spool = kept(server, store, monkeypatch)
    assert recover(store) == 1
    (trial,) = store.trials()
    assert (trial.id, trial.fault, trial.claims, len(trial.replies)) == (spool.name, None, (claim,), 4)
    assert "stored by a later rooftop" in trial.notes[-1]
    assert spools(store) == []
    assert recover(store) == 0


def test_a_spool_whose_trial_is_stored_goes(server: Truth, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        trial = measured(server, store)
    assert len(spools(store)) == 1
    assert recover(store) == 0
    assert list(store.trials()) == [trial]
    assert spools(store) == []


@pytest.mark.parametrize("missing", [("end.json",), ("end.json", "begin.json"), ("end.json", "reads.bin"),
                                     ("end.json", "reads.bin", "prompts.idx")], ids="-".join)
def test_a_level_cut_at_any_moment(server: Truth, store: Store, monkeypatch: pytest.MonkeyPatch,
                                   missing: tuple[str, ...]) -> None:
    spool = kept(server, store, monkeypatch)
    for name in missing:
        (spool / name).unlink()
    assert recover(store) == 1
    (trial,) = store.trials()
    assert trial.unfinished
    assert trial.fault == Fault("killed", "rooftop was killed during this level")
    assert len(trial.replies) == (0 if "reads.bin" in missing else 4)


def test_a_cut_record_keeps_its_whole_batches(server: Truth, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = kept(server, store, monkeypatch)
    (spool / "end.json").unlink()
    data = (spool / "reads.bin").read_bytes()
    (spool / "reads.bin").write_bytes(data[:-1])
    assert recover(store) == 1
    (trial,) = store.trials()
    assert trial.unfinished


@pytest.mark.parametrize("job", [None, '{"schema": 1, "tar'], ids=["no job", "half a job"])
def test_a_level_that_never_began_goes(server: Truth, store: Store, monkeypatch: pytest.MonkeyPatch,
                                       job: str | None) -> None:
    spool = kept(server, store, monkeypatch)
    (spool / "job.json").unlink()
    if job is not None:
        (spool / "job.json").write_text(job, encoding="utf-8")
    assert recover(store) == 0
    assert list(store.trials()) == []
    assert spools(store) == []


def test_what_is_not_ours_stays(server: Truth, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = kept(server, store, monkeypatch)
    folder = spool_folder(store.path)
    (folder / "notes").mkdir()
    (folder / "file").touch()
    newer = folder / "newer"
    shutil.copytree(spool, newer)
    (newer / "trial.json").write_text('{"schema": 99}', encoding="utf-8")
    with locked(spool / "owner"):
        assert recover(store) == 0
    assert {path.name for path in spools(store)} == {spool.name, "notes", "file", "newer"}
    assert recover(store) == 1
    assert {path.name for path in spools(store)} == {"notes", "file", "newer"}


def test_a_key_in_a_left_spool_is_not_stored(server: Truth, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = kept(server, store, monkeypatch)
    job = codec.from_json(Job, (spool / "job.json").read_text(encoding="utf-8"))
    target = replace(job.target, secret_headers=(("Authorization", "SECRET"),))
    level = levels.read_spool(spool)
    broken = replace(level, replies=tuple(replace(one, error="http 401", detail="bad key hush")
                                          for one in level.replies))
    monkeypatch.setenv("SECRET", "hush")
    assert {one.detail for one in room.hidden(broken, target).replies} == {"bad key ***"}
    monkeypatch.delenv("SECRET")
    assert {one.detail for one in room.hidden(broken, target).replies} == {""}


def test_a_folder_that_cannot_be_written(server: Truth, store: Store) -> None:
    spool_folder(store.path).touch()
    with pytest.raises(StoreFailed, match="raw bytes cannot be kept") as failed:
        measured(server, store)
    assert "--store" in failed.value.remedy


def test_each_level_has_an_id_of_its_own() -> None:
    assert new_head(LOAD, Slot(PLAN)).id != new_head(LOAD, Slot(PLAN)).id


@given(st.integers(1, 500), st.integers(0, 64), st.integers(1, 1000))
def test_prompts_for_a_number_of_requests(requests: int, warmup: int, tokens: int) -> None:
    load = Workload(Arrivals(concurrency=4), 8, tokens, stop=Stop(requests=requests), warmup=warmup)
    assert prompt_count(load) == requests + warmup


@given(st.integers(1, 512), st.floats(0.1, 1e5), st.integers(1, 4000))
def test_prompts_for_a_length_of_time(users: int, seconds: float, tokens: int) -> None:
    load = Workload(Arrivals(concurrency=users), 8, tokens, stop=Stop(seconds=seconds), warmup=users)
    assert users <= prompt_count(load) - users <= 20_000
    longer = replace(load, stop=Stop(seconds=2 * seconds))
    assert prompt_count(load) <= prompt_count(longer)


def test_prompts_for_a_rate() -> None:
    load = Workload(Arrivals("poisson", 0, 10.0), 8, 8, stop=Stop(seconds=10.0), warmup=3)
    assert prompt_count(load) == 120 + 16 + 3


def test_a_server_is_asked_nothing_once_the_user_has_stopped(server: Truth, store: Store,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    whole = levels.measure

    def stopped(*given: Any, **named: Any) -> levels.Level:
        return replace(whole(*given, **named), fault=levels.STOPPED)

    monkeypatch.setattr(levels, "measure", stopped)
    trial = measured(server, store, Seen(claims=lambda: pytest.fail("it hangs, perhaps"),
                                         death=lambda: pytest.fail("nor this")))
    assert (trial.fault, trial.claims) == (levels.STOPPED, launch().claims)
    assert list(store.trials()) == [trial]
