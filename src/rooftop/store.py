"""Launches and trials in one SQLite file; append only, every stored level whole.

The file is in WAL mode and every commit is synced to the disk, so that a stored level survives a kill and a power
loss, and several rooftops may write to one file.  Triggers refuse UPDATE and DELETE.  Stamps of tokens stay packed as
they came, one row a reply; the rest of a noun is the codec's JSON.
"""

import errno
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rooftop import _tables as tables
from rooftop.domain import codec
from rooftop.domain.launch import Launch
from rooftop.domain.trial import Trial
from rooftop.errors import BadInput, RooftopError, StoreFailed

Noun = TypeVar("Noun", Trial, Launch)


class Store:
    """One store, open.  Use it as a context manager, in one thread.

    Every method raises StoreFailed, and nothing else, where the file cannot be read or written.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        """Use `open`."""
        self.path = path
        self._db = db

    @classmethod
    def open(cls, path: str | Path, *, read_only: bool = False, wait_s: float = 60.0) -> Self:
        """The store at `path`; where there is none, it is made with its folders.

        A file that cannot be written is refused here, before anything is measured, unless `read_only`.  `wait_s`: how
        long to wait while another rooftop writes.  Raises BadInput for a missing file when `read_only`; StoreFailed for
        a file that is no store, is damaged or is of a newer rooftop.
        """
        path = Path(path)
        if read_only and not path.exists():
            raise BadInput("there is no store here", where=str(path),
                           remedy="check the path; `rooftop bench` and `rooftop study` make a store")
        if path.is_dir():
            raise StoreFailed("this is a folder, not a store", where=str(path), remedy="name a file in it")
        with _told(path, "opened"):
            return cls(path, _open_to_read(path, wait_s) if read_only else _open_to_write(path, wait_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def add_launch(self, launch: Launch, logs: Sequence[str] = ()) -> None:
        """Store a start and the log of each of its servers (in the order of replicas).  Raises StoreFailed."""
        head = tables.head_json(launch)
        packed = [zlib.compress(log.encode("utf-8", "surrogatepass")) for log in logs]
        with _told(self.path, "written"), self._transaction():
            self._refuse_known("launches", launch.id)
            number = self._insert("launches", id=launch.id, study=launch.study, plan_key=launch.plan.key,
                                  started_at=launch.started_at, head=head, head_crc=tables.checksum(head))
            for replica, log in enumerate(packed):
                self._insert("logs", launch=number, replica=replica, log=log)

    def add_trial(self, trial: Trial, *, spool: str | Path | None = None) -> None:
        """Store a level whole, in one transaction that is on the disk when this returns.

        `spool`: where its raw bytes are, to tell a person if it cannot be stored.  Raises StoreFailed.
        """
        head, replies, samples = tables.head_json(trial), tables.pack_replies(trial), tables.pack_samples(trial.samples)
        with _told(self.path, "written", spool), self._transaction():
            self._refuse_known("trials", trial.id)
            number = self._insert(
                "trials", id=trial.id, study=trial.study, launch_id=trial.launch_id, plan_key=trial.plan.key,
                level=trial.workload.level, repeat=trial.repeat, origin=trial.origin, started_at=trial.started_at,
                replies=len(replies), head=head, head_crc=tables.checksum(head),
                body_crc=tables.body_checksum(replies, samples))
            marks = ", ".join("?" * (2 + len(tables.REPLY_FIELDS)))
            self._db.executemany(f"INSERT INTO replies VALUES ({marks})",
                                 ((number, place, *reply) for place, reply in enumerate(replies)))
            self._db.execute("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?)", (number, *samples))

    def trials(self, *, study: str | None = None, launch: str | None = None,
               ids: Sequence[str] | None = None) -> Iterator[Trial]:
        """Whole trials in the order in which they were stored, one at a time; None = any.

        Raises BadInput for an id that is not here, StoreFailed for a trial that is not as it was written.
        """
        for number, count, crc, head in self._trial_rows(study, launch, ids):
            yield self._with_body(number, count, crc, head)

    def trial_heads(self, *, study: str | None = None, launch: str | None = None,
                    ids: Sequence[str] | None = None) -> Iterator[Trial]:
        """The same trials without replies and samples: cheap, for lists and for choosing."""
        for _, _, _, head in self._trial_rows(study, launch, ids):
            yield head

    def launches(self, *, study: str | None = None, ids: Sequence[str] | None = None) -> Iterator[Launch]:
        """Launches in the order in which they were stored, failed ones too.  Raises BadInput for an unknown id."""
        for row in self._rows("launches", "head, head_crc", {"study": study}, ids):
            yield self._noun(Launch, *row)

    def log(self, launch: str, replica: int = 0) -> str:
        """The log of one server of a launch.  Raises BadInput where there is none."""
        with _told(self.path, "read"):
            row = self._db.execute("SELECT log FROM logs JOIN launches ON launch = launches.number "
                                   "WHERE id = ? AND replica = ?", (launch, replica)).fetchone()
            if row is None:
                raise BadInput(f"no log of server {replica} of launch {launch!r}", where=str(self.path))
            return zlib.decompress(row[0]).decode("utf-8", "surrogatepass")

    def studies(self) -> tuple[str, ...]:
        """Names of the studies here, the latest first."""
        with _told(self.path, "read"):
            rows = self._db.execute(
            "SELECT study FROM (SELECT study, started_at FROM trials UNION ALL SELECT study, started_at FROM launches)"
            " WHERE study <> '' GROUP BY study ORDER BY max(started_at) DESC, study").fetchall()
        return tuple(row[0] for row in rows)

    def latest_study(self) -> str | None:
        """The study that was worked on last, None where there is none."""
        return next(iter(self.studies()), None)

    def _rows(self, table: str, columns: str, wanted: dict[str, str | None], ids: Sequence[str] | None) -> list[Any]:
        where = {f"{column} = ?": value for column, value in wanted.items() if value is not None}
        if ids is not None:
            where["id IN (SELECT value FROM json_each(?))"] = json.dumps(ids)
        condition = " AND ".join(where) or "1"
        with _told(self.path, "read"):
            if ids is not None:
                known = {row[0] for row in self._db.execute(
                    f"SELECT id FROM {table} WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(ids),))}
                for one in ids:
                    if one not in known:
                        raise BadInput(f"no {table} with the id {one!r}", where=str(self.path))
            return self._db.execute(f"SELECT {columns} FROM {table} WHERE {condition} ORDER BY number",
                                    tuple(where.values())).fetchall()

    def _trial_rows(self, study: str | None, launch: str | None,
                    ids: Sequence[str] | None) -> Iterator[tuple[int, int, int, Trial]]:
        columns = "number, replies, body_crc, head, head_crc"
        for number, count, crc, head, head_crc in self._rows(
                "trials", columns, {"study": study, "launch_id": launch}, ids):
            yield number, count, crc, self._noun(Trial, head, head_crc)

    def _noun(self, kind: type[Noun], head: Any, crc: int) -> Noun:
        if tables.checksum(head) != crc:
            raise _damaged(self.path, f"a {kind.__name__.lower()} is not as it was written")
        try:
            return codec.from_json(kind, head, where=str(self.path))
        except BadInput as error:
            raise StoreFailed(f"a {kind.__name__.lower()} cannot be read: {error.what}", where=str(self.path),
                              remedy="use the rooftop version that wrote it, or a newer one") from error

    def _with_body(self, number: int, count: int, crc: int, head: Trial) -> Trial:
        with _told(self.path, "read"):
            columns = ", ".join(tables.REPLY_FIELDS)
            replies = self._db.execute(f"SELECT {columns} FROM replies WHERE trial = ? ORDER BY place",
                                       (number,)).fetchall()
            samples = self._db.execute("SELECT names, at_s, series, value, server FROM samples WHERE trial = ?",
                                       (number,)).fetchone()
        if samples is None or len(replies) != count or tables.body_checksum(replies, samples) != crc:
            raise _damaged(self.path, f"trial {head.id} is not as it was written")
        return tables.with_body(head, replies, samples)

    def _insert(self, table: str, **cells: Any) -> int:
        marks = ", ".join("?" * len(cells))
        cursor = self._db.execute(f"INSERT INTO {table} ({', '.join(cells)}) VALUES ({marks})", tuple(cells.values()))
        return cursor.lastrowid or 0

    def _refuse_known(self, table: str, one: str) -> None:
        if self._db.execute(f"SELECT 1 FROM {table} WHERE id = ?", (one,)).fetchone():
            raise StoreFailed(f"{one!r} is stored already: the store is append only", where=str(self.path))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


@contextmanager
def _told(path: Path, done: str, spool: str | Path | None = None) -> Iterator[None]:
    """Turn what SQLite and the system say into an error for a person."""
    try:
        yield
    except (sqlite3.Error, zlib.error, OSError, OverflowError, UnicodeError, TypeError) as error:
        raise _explained(error, path, done, spool) from error


def _connect(path: Path, mode: str, wait_s: float) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=wait_s, isolation_level=None)
    with _closed_on_error(db):
        for pragma in ("synchronous = FULL", "trusted_schema = OFF", "cell_size_check = ON"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return db


def _open_to_read(path: Path, wait_s: float) -> sqlite3.Connection:
    """SQLite needs files beside a store even to read it; where none can be made, nobody writes, and it is whole."""
    try:
        db = _connect(path, "ro", wait_s)
    except sqlite3.OperationalError as error:
        wal = path.with_name(path.name + "-wal")
        beside = _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR)
        if not beside or (wal.exists() and wal.stat().st_size):
            raise
        db = _connect(path, "ro&immutable=1", wait_s)
    with _closed_on_error(db):
        _check(db, path, may_be_empty=False)
    return db


def _open_to_write(path: Path, wait_s: float) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not os.access(path, os.W_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, "it is read-only")
    db = _connect(path, "rwc", wait_s)
    with _closed_on_error(db):
        _check(db, path, may_be_empty=True)
        _patiently(lambda: db.execute("PRAGMA journal_mode = WAL"), wait_s)
        db.execute("BEGIN IMMEDIATE")
        if db.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in tables.schema_statements():
                db.execute(statement)
        db.execute("COMMIT")
    return db


@contextmanager
def _closed_on_error(db: sqlite3.Connection) -> Iterator[None]:
    with ExitStack() as undo:
        undo.callback(db.close)
        yield
        undo.pop_all()


def _patiently(act: Callable[[], object], wait_s: float) -> None:
    """SQLite does not wait for others when it turns a new file to WAL; this does."""
    end = time.monotonic() + wait_s
    while True:
        try:
            act()
            return
        except sqlite3.OperationalError as error:
            if _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _check(db: sqlite3.Connection, path: Path, *, may_be_empty: bool) -> None:
    """Raises StoreFailed where the file is not a store of this rooftop's schema, or empty where it may be.

    Another rooftop may be making the store right now, marks and tables in one transaction: where tables are seen, the
    marks that are read after them are there too.
    """
    count, application, schema = (db.execute(query).fetchone()[0] for query in (
        "SELECT count(*) FROM sqlite_master", "PRAGMA application_id", "PRAGMA user_version"))
    if count == 0:
        if not may_be_empty:
            raise StoreFailed("this file is empty: nothing was ever stored in it", where=str(path))
    elif application != tables.APPLICATION:
        raise StoreFailed("this database is not a store of rooftop", where=str(path), remedy="name another file")
    elif schema != tables.SCHEMA:
        raise StoreFailed(f"this store has schema {schema}; this rooftop reads and writes schema {tables.SCHEMA}",
                          where=str(path), remedy="use the rooftop version that wrote it, or a newer one")


def _code(error: BaseException) -> int:
    """SQLite's primary result code, 0 where it gave none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _damaged(path: Path, what: str, kept: str = "") -> StoreFailed:
    return StoreFailed(
        f"the store is damaged: {what}", where=str(path),
        remedy=f"{kept}nothing was overwritten; copy it together with {path}-wal if there is one (neither is whole "
               f"without the other), then save what is readable: sqlite3 {path} .recover | sqlite3 saved.db")


def _explained(error: Exception, path: Path, done: str, spool: str | Path | None) -> RooftopError:
    """What a person is told: what happened, where, what to do."""
    code = _code(error)
    kept = f"the level just measured is kept in {spool}; " if spool else ""
    full = code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT)
    if code == sqlite3.SQLITE_CORRUPT or isinstance(error, zlib.error | TypeError) or "decode" in str(error):
        return _damaged(path, str(error), kept)
    if full or (code == sqlite3.SQLITE_IOERR and done != "read" and _no_space(path)):
        what = "the disk is full: nothing more can be stored"
        remedy = "free some space and start again; what was stored before is unharmed"
    elif code == sqlite3.SQLITE_IOERR:
        what = f"the store cannot be {done}: {error}"
        remedy = "check the disk, its quota and the limit on file sizes; what was stored before is unharmed"
    elif code == sqlite3.SQLITE_NOTADB:
        what = "this file is not a store: it is no SQLite database, or its beginning is damaged"
        remedy = "name another file; nothing was overwritten"
    elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        what = "another program holds the store locked"
        remedy = f"see who has it open (`fuser {path}`), and try again when it is done"
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM) or isinstance(error, OSError):
        what = f"the store cannot be {done}: {_reason(error, path)}"
        remedy = "check the permissions of the file and of its folder, or name another file"
    else:
        what, remedy = f"the store cannot be {done}: {error}", ""
    return StoreFailed(what, where=str(path), remedy=(kept + remedy).removesuffix("; "))


def _reason(error: Exception, path: Path) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if _code(error) == sqlite3.SQLITE_READONLY:
        return "it is read-only"
    return "it is read-only, or its folder is" if path.exists() else "no file can be made here"


def _no_space(path: Path) -> bool:
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < 1 << 16
