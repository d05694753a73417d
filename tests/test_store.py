import contextlib
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooftop import _tables as tables
from rooftop import store as store_module
from rooftop.domain.launch import Launch
from rooftop.domain.trial import Reply, Trial
from rooftop.errors import BadInput, RooftopError, StoreFailed
from rooftop.store import Store
from tests.domain import nouns
from tests.stored import launch, reply, trial

STORED = [trial(f"t{i}") for i in range(3)]


def filled(path: Path, count: int = 3) -> list[Trial]:
    trials = [trial(f"t{i}") for i in range(count)]
    with Store.open(path) as store:
        store.add_launch(launch(), ["log of the server\n" * 50])
        for one in trials:
            store.add_trial(one)
    return trials


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store's file with the trials of STORED in it."""
    path = tmp_path_factory.mktemp("content") / "store.db"
    assert filled(path) == STORED
    return path.read_bytes()


def test_what_goes_in_comes_out(path: Path) -> None:
    counter = iter(range(1000))

    @settings(max_examples=25, deadline=None)
    @given(nouns.of(Trial), nouns.of(Launch), st.lists(st.text(), max_size=3))
    def check(drawn: Trial, start: Launch, logs: list[str]) -> None:
        number = next(counter)
        drawn, start = replace(drawn, id=f"t{number}"), replace(start, id=f"l{number}")
        store.add_trial(drawn)
        store.add_launch(start, logs)
        assert list(store.trials(ids=[drawn.id])) == [drawn]
        assert list(store.trial_heads(ids=[drawn.id])) == [replace(drawn, replies=(), samples=())]
        assert list(store.launches(ids=[start.id])) == [start]
        assert [store.log(start.id, replica) for replica in range(len(logs))] == logs

    with Store.open(path) as store:
        check()


def test_texts_that_are_not_unicode_are_kept(path: Path) -> None:
    broken = trial(replies=0, notes=("\udcff",))
    broken = replace(broken, replies=(replace(reply(0), text="half \ud83d", detail="\udc80", finish="\ud800"),))
    with Store.open(path) as store:
        store.add_trial(broken)
        store.add_launch(launch(), ["log \udcfe"])
        assert list(store.trials()) == [broken]
        assert store.log("l") == "log \udcfe"


def test_choosing(path: Path) -> None:
    trials = [trial("a", launch_id="l1"), trial("b", study="other"), trial("c", launch_id="l2"), trial("d", study="")]
    with Store.open(path) as store:
        for one in reversed(trials):
            store.add_trial(one)
        store.add_launch(launch("l1"))
        store.add_launch(launch("l2", study="other"))
    with Store.open(path, read_only=True) as store:
        assert [one.id for one in store.trials()] == ["d", "c", "b", "a"]
        assert [one.id for one in store.trial_heads(study="s")] == ["c", "a"]
        assert [one.id for one in store.trials(launch="l1")] == ["a"]
        assert [one.id for one in store.trials(study="s", ids=["a", "b"])] == ["a"]
        assert list(store.trials(ids=[])) == []
        assert [one.id for one in store.launches(study="other")] == ["l2"]
        with pytest.raises(BadInput, match="no trials with the id 'x'"):
            list(store.trials(ids=["a", "x"]))
        with pytest.raises(BadInput, match="no launches with the id 'x'"):
            list(store.launches(ids=["x"]))
        with pytest.raises(BadInput, match="no log of server 0 of launch 'l1'"):
            store.log("l1")


def test_the_latest_study_counts_failed_starts_too(path: Path) -> None:
    with Store.open(path) as store:
        assert store.latest_study() is None
        store.add_trial(trial("a", study="", started_at="2026-09-01"))
        assert store.latest_study() is None
        store.add_trial(trial("b", study="new", started_at="2026-03-01"))
        store.add_trial(trial("c", study="old", started_at="2026-02-01"))
        assert store.studies() == ("new", "old")
        store.add_launch(launch(study="failed", started_at="2026-04-01"))
        assert store.latest_study() == "failed"


def test_a_row_has_every_field_of_a_reply(path: Path) -> None:
    """A field added to Reply needs a column, a new schema number, and a way to read the old one."""
    filled(path, 1)
    with contextlib.closing(sqlite3.connect(path)) as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(replies)")]
    assert columns == ["trial", "place", *(field.name for field in fields(Reply))]


def test_a_level_is_synced_to_the_disk_when_it_is_stored(path: Path) -> None:
    with Store.open(path) as store:
        assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)


@pytest.mark.parametrize("table", ["launches", "logs", "trials", "replies", "samples"])
def test_nothing_stored_can_be_changed(path: Path, table: str) -> None:
    trials = filled(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        column = db.execute(f"PRAGMA table_info({table})").fetchall()[-1][1]
        for change in (f"UPDATE {table} SET {column} = 0", f"DELETE FROM {table}",
                       f"INSERT OR REPLACE INTO {table} SELECT * FROM {table} LIMIT 1"):
            with pytest.raises(sqlite3.IntegrityError, match="append only"):
                db.execute(change)
    with Store.open(path, read_only=True) as store:
        assert list(store.trials()) == trials


def test_an_id_is_stored_once(path: Path) -> None:
    filled(path)
    with Store.open(path) as store:
        with pytest.raises(StoreFailed, match="'t1' is stored already"):
            store.add_trial(trial("t1", replies=1))
        with pytest.raises(StoreFailed, match="'l' is stored already"):
            store.add_launch(launch())
        store.add_trial(trial("t9"))
        assert [len(one.replies) for one in store.trials()] == [3, 3, 3, 3]


def test_a_number_too_large_loses_only_its_own_trial(path: Path) -> None:
    with Store.open(path) as store:
        with pytest.raises(StoreFailed, match="cannot be written") as caught:
            store.add_trial(trial("a", replies=1, repeat=2**70), spool="kept/here")
        assert "kept/here" in caught.value.remedy
        store.add_trial(trial("b"))
        assert [one.id for one in store.trials()] == ["b"]


# --- files that are no store, or no longer one ---


def read_all(path: Path, read_only: bool) -> None:
    with Store.open(path, read_only=read_only, wait_s=0.1) as store:
        list(store.trials())
        list(store.launches())


def refused(path: Path, *, read_only: bool = True) -> RooftopError:
    """What opening and reading all of a file says; it must say it in one of rooftop's errors."""
    before = path.read_bytes() if path.is_file() and os.access(path, os.R_OK, effective_ids=True) else b""
    with pytest.raises(RooftopError) as caught:
        read_all(path, read_only)
    assert caught.value.where == str(path)
    if before:
        assert path.read_bytes() == before
    return caught.value


def test_a_missing_file_is_bad_input_when_reading(path: Path) -> None:
    error = refused(path)
    assert isinstance(error, BadInput)
    assert "no store here" in error.what
    assert not path.exists()


def test_folders_are_made_when_writing(path: Path) -> None:
    deep = path.parent / "a" / "b ü%?#" / "store.db"
    filled(deep, 1)
    with Store.open(deep, read_only=True) as store:
        assert len(list(store.trials())) == 1


@pytest.mark.parametrize("read_only", [True, False])
def test_what_is_not_a_store_is_refused(path: Path, read_only: bool) -> None:
    path.write_bytes(random.Random(1).randbytes(10_000))
    assert "not a store" in refused(path, read_only=read_only).what
    path.write_text("{}" * 100)
    assert "not a store" in refused(path, read_only=read_only).what
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE launches (id)")
    assert "not a store of rooftop" in refused(path, read_only=read_only).what
    assert "this is a folder" in refused(path.parent, read_only=read_only).what


def test_an_empty_file_is_a_new_store_and_nothing_to_read(path: Path) -> None:
    path.touch()
    assert "empty" in refused(path).what
    assert len(filled(path)) == 3


@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_of_a_newer_rooftop_is_refused(path: Path, read_only: bool) -> None:
    filled(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {tables.SCHEMA + 1}")
    error = refused(path, read_only=read_only)
    assert f"schema {tables.SCHEMA + 1}; this rooftop reads and writes schema {tables.SCHEMA}" in error.what
    assert "newer" in error.remedy


def survivors(path: Path) -> list[Trial]:
    """Trials that a damaged file still gives; everything else must be StoreFailed."""
    whole: list[Trial] = []
    with contextlib.suppress(StoreFailed), Store.open(path, read_only=True) as store:
        list(store.launches())
        for head in store.trial_heads():
            with contextlib.suppress(StoreFailed):
                whole += store.trials(ids=[head.id])
    return whole


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_truncated_store_says_so(path: Path, content: bytes, share: float) -> None:
    path.write_bytes(content[:int(len(content) * share)])
    for read_only in (True, False):
        error = refused(path, read_only=read_only)
        assert isinstance(error, StoreFailed)
        assert "damaged" in error.what
        assert "nothing was overwritten" in error.remedy


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_byte_never_makes_another_trial(path: Path, content: bytes, seed: int) -> None:
    drawn, damaged = random.Random(seed), bytearray(content)
    for _ in range(drawn.choice((1, 1, 10))):
        damaged[drawn.randrange(100, len(content))] ^= 1 << drawn.randrange(8)
    path.write_bytes(damaged)
    assert all(one in STORED for one in survivors(path))


def test_damage_is_named_with_a_way_out(path: Path, content: bytes) -> None:
    place = content.index(array("q", [1000, 1001, 1002]).tobytes())
    path.write_bytes(content[:place] + b"\xff" + content[place + 1:])
    error = refused(path)
    assert re.fullmatch(r"the store is damaged: trial t\d is not as it was written", error.what)
    assert f"{path}-wal" in error.remedy
    assert f"sqlite3 {path} .recover" in error.remedy


# --- places that cannot be written ---


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of its own, and a user for whom permissions count."""
    folder = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        shutil.chown(folder, 65534)
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    for one in (folder, *folder.iterdir()):
        one.chmod(0o700)
    shutil.rmtree(folder)


def test_a_read_only_file_can_be_read_and_is_refused_for_writing(unprivileged: Path) -> None:
    path = unprivileged / "store.db"
    trials = filled(path)
    path.chmod(0o400)
    error = refused(path, read_only=False)
    assert "read-only" in error.what
    assert "permissions" in error.remedy
    with Store.open(path, read_only=True) as store:
        assert list(store.trials()) == trials


def test_a_read_only_folder_can_be_read_and_is_refused_for_writing(unprivileged: Path) -> None:
    path = unprivileged / "store.db"
    trials = filled(path)
    unprivileged.chmod(0o500)
    assert "read-only" in refused(path, read_only=False).what
    with Store.open(path, read_only=True) as store:
        assert list(store.trials()) == trials
    assert "no file can be made here" in refused(unprivileged / "new.db", read_only=False).what


def test_a_file_that_may_not_be_read_says_so(unprivileged: Path) -> None:
    path = unprivileged / "store.db"
    filled(path)
    path.chmod(0)
    assert "cannot be opened" in refused(path).what


def test_a_place_where_no_file_can_be_made() -> None:
    assert "cannot be opened" in refused(Path("/proc/rooftop/store.db"), read_only=False).what
    assert "cannot be opened" in refused(Path(__file__) / "store.db", read_only=False).what


def full(store: Store) -> None:
    """The level does not fit; those before it and the store itself are unharmed."""
    with pytest.raises(StoreFailed, match="the disk is full") as caught:
        store.add_trial(trial("large", replies=4000), spool="there/spool")
    assert caught.value.remedy.startswith("the level just measured is kept in there/spool; free some space")
    assert [one.id for one in store.trials()] == ["t0", "t1", "t2"]


def test_a_full_disk_loses_nothing(path: Path) -> None:
    filled(path)
    with Store.open(path) as store:
        store._db.execute("PRAGMA max_page_count = 30")
        full(store)
        store._db.execute("PRAGMA max_page_count = 1000000")
        store.add_trial(trial("large", replies=4000))
        assert len(list(store.trials())) == 4


def test_a_really_full_disk_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False,
                                       capture_output=True).returncode:
        pytest.skip("no permission to mount a small disk")
    try:
        trials = filled(disk / "store.db")
        with Store.open(disk / "store.db") as store:
            full(store)
            store.add_trial(trial("small", replies=1))
        with contextlib.suppress(OSError), (disk / "rest").open("wb", buffering=0) as rest:
            while rest.write(bytes(4096)):
                pass
        with Store.open(disk / "store.db", read_only=True) as store:
            assert list(store.trials()) == [*trials, trial("small", replies=1)]
        assert "the disk is full" in refused(disk / "new.db", read_only=False).what
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_limit_on_file_sizes_loses_nothing(path: Path) -> None:
    trials = filled(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Store.open(path) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            with pytest.raises(StoreFailed, match="cannot be written") as caught:
                store.add_trial(trial("large", replies=4000), spool="there/spool")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "there/spool; check the disk, its quota and the limit on file sizes" in caught.value.remedy
        assert list(store.trials()) == trials
        store.add_trial(trial("large", replies=4000))


# --- several at once, and sudden ends ---


def test_a_lock_of_another_is_named(path: Path) -> None:
    filled(path)
    other = sqlite3.connect(path, isolation_level=None)
    with Store.open(path, wait_s=0.05) as store, contextlib.closing(other):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed, match="another program holds the store locked") as caught:
            store.add_trial(trial("t9"), spool="there/spool")
        assert "there/spool" in caught.value.remedy
        assert "locked" in refused(path, read_only=False).what
        assert len(list(store.trials())) == 3
        other.execute("ROLLBACK")
        store.add_trial(trial("t9"))


def test_a_new_store_waits_for_one_that_makes_it_too(path: Path) -> None:
    path.touch()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    ending = threading.Timer(0.2, other.execute, ("ROLLBACK",))
    ending.start()
    with Store.open(path) as store:
        store.add_trial(trial())
    ending.join()
    other.close()


WRITER = """
import sys
from rooftop.store import Store
from tests.stored import launch, trial
name, count = sys.argv[2], int(sys.argv[3])
with Store.open(sys.argv[1]) as store:
    store.add_launch(launch(f"{name}-l"), ["log" * 1000])
    for i in range(count):
        store.add_trial(trial(f"{name}-{i}", replies=1 + i % 40))
        print(f"{name}-{i}", flush=True)
"""


def writer(path: Path, name: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", WRITER, path, name, str(count)], stdout=subprocess.PIPE, text=True,
                            cwd=Path(__file__).parent.parent)


def test_several_rooftops_write_to_one_new_store_at_once(path: Path) -> None:
    writers = [writer(path, name, 15) for name in "abc"]
    outputs = [one.communicate(timeout=60)[0].split() for one in writers]
    assert [one.returncode for one in writers] == [0, 0, 0]
    with Store.open(path, read_only=True) as store:
        stored = [one.id for one in store.trials()]
        assert sorted(stored) == sorted(f"{name}-{i}" for name in "abc" for i in range(15))
        for name, output in zip("abc", outputs, strict=True):
            assert [one for one in stored if one.startswith(name)] == output
        assert {one.id for one in store.launches()} == {"a-l", "b-l", "c-l"}


def test_a_reader_sees_whole_trials_while_another_writes(path: Path) -> None:
    filled(path, 1)
    with writer(path, "w", 40) as one, Store.open(path, read_only=True) as store:
        assert one.stdout is not None
        for line in one.stdout:
            (seen,) = store.trials(ids=[line.strip()])
            assert len(seen.replies) == 1 + int(line.rpartition("-")[2]) % 40


def test_kill_9_at_any_moment_leaves_every_stored_trial_whole(path: Path) -> None:
    drawn = random.Random(9)
    told: list[str] = []
    for round_ in range(8):
        with writer(path, f"k{round_}", 100_000) as one:
            assert one.stdout is not None
            told.append(one.stdout.readline().strip())
            time.sleep(drawn.uniform(0, 0.15))
            one.send_signal(signal.SIGKILL)
            told += one.stdout.read().split()
        assert one.returncode == -signal.SIGKILL
        with Store.open(path, read_only=bool(round_ % 2)) as store:
            stored = {found.id: found for found in store.trials()}
            assert set(told) <= set(stored)
            assert len(stored) <= len(told) + round_ + 1
    for name, found in stored.items():
        assert found == trial(name, replies=1 + int(name.rpartition("-")[2]) % 40)


class Beside:
    """A connection to an empty file in which another rooftop makes its store after the first look."""

    def __init__(self, path: Path) -> None:
        self.path, self.db = path, sqlite3.connect(path)
        self.looks = 0

    def execute(self, query: str) -> sqlite3.Cursor:
        found = self.db.execute(query)
        rows = found.fetchall()
        self.looks += 1
        if self.looks == 1:
            Store.open(self.path).close()
        return self.db.execute("SELECT ?", rows[0])


def test_a_store_that_another_rooftop_is_making(path: Path) -> None:
    beside = Beside(path)
    store_module._check(beside, path, may_be_empty=True)  # type: ignore[arg-type]
    assert beside.looks == 3
    beside.db.close()
