"""Tables of the store, and how nouns become their rows."""

import json
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from rooftop.domain import codec
from rooftop.domain.trial import Reply, Sample, Trial

SCHEMA = 1
APPLICATION = 0x726F6F66  # "roof": marks the file as a store of rooftop in its header

Row = tuple[Any, ...]

_TABLES = """
CREATE TABLE launches (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, study TEXT NOT NULL, plan_key TEXT NOT NULL,
    started_at TEXT NOT NULL, head TEXT NOT NULL, head_crc INTEGER NOT NULL);
CREATE TABLE logs (
    launch INTEGER NOT NULL REFERENCES launches, replica INTEGER NOT NULL, log BLOB NOT NULL,
    PRIMARY KEY (launch, replica));
CREATE TABLE trials (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, study TEXT NOT NULL, launch_id TEXT NOT NULL,
    plan_key TEXT NOT NULL, level TEXT NOT NULL, repeat INTEGER NOT NULL, origin TEXT NOT NULL,
    started_at TEXT NOT NULL, replies INTEGER NOT NULL, head TEXT NOT NULL, head_crc INTEGER NOT NULL,
    body_crc INTEGER NOT NULL);
CREATE INDEX trials_study ON trials (study, plan_key);
CREATE INDEX trials_launch ON trials (launch_id);
CREATE TABLE replies (
    trial INTEGER NOT NULL REFERENCES trials, place INTEGER NOT NULL, number INTEGER NOT NULL,
    due_ns INTEGER NOT NULL, sent_ns INTEGER NOT NULL, headers_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
    chunk_ns BLOB NOT NULL, chunk_tokens BLOB NOT NULL,
    prompt_tokens INTEGER, output_tokens INTEGER, cached_tokens INTEGER, count_source TEXT NOT NULL,
    asked_input_tokens INTEGER NOT NULL, asked_output_tokens INTEGER NOT NULL, finish TEXT NOT NULL,
    error TEXT, detail TEXT NOT NULL, connection INTEGER NOT NULL, server INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (trial, place));
CREATE TABLE samples (
    trial INTEGER PRIMARY KEY REFERENCES trials, names TEXT NOT NULL, at_s BLOB NOT NULL, series BLOB NOT NULL,
    value BLOB NOT NULL, server BLOB NOT NULL);
"""

_KEYS = {
    "launches": "number = NEW.number OR id = NEW.id",
    "logs": "launch = NEW.launch AND replica = NEW.replica",
    "trials": "number = NEW.number OR id = NEW.id",
    "replies": "trial = NEW.trial AND place = NEW.place",
    "samples": "trial = NEW.trial",
}

REPLY_FIELDS = tuple(field.name for field in fields(Reply))


def schema_statements() -> Iterable[str]:
    """What makes an empty file a store.  Triggers refuse every change of a row that is there."""
    yield from (statement for statement in _TABLES.split(";") if statement.strip())
    for table, same in _KEYS.items():
        for verb in ("UPDATE", "DELETE"):
            yield (f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                   "BEGIN SELECT RAISE(ABORT, 'the store is append only'); END")
        yield (f"CREATE TRIGGER {table}_once BEFORE INSERT ON {table} "
               f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
               "BEGIN SELECT RAISE(ABORT, 'the store is append only'); END")
    yield f"PRAGMA application_id = {APPLICATION}"
    yield f"PRAGMA user_version = {SCHEMA}"


def text_cell(value: Any) -> Any:
    """Text as SQLite takes it: lone surrogates, which UTF-8 has no place for, make it a blob."""
    if not isinstance(value, str):
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def pack_replies(trial: Trial) -> list[Row]:
    """One row a reply, in the order of REPLY_FIELDS."""
    return [tuple(text_cell(getattr(reply, name)) for name in REPLY_FIELDS) for reply in trial.replies]


_BLOBS = {REPLY_FIELDS.index("chunk_ns"), REPLY_FIELDS.index("chunk_tokens")}


def unpack_reply(row: Row) -> Reply:
    """The reply of one row of `pack_replies`."""
    values: list[Any] = [
        cell.decode("utf-8", "surrogatepass") if isinstance(cell, bytes) and i not in _BLOBS else cell
        for i, cell in enumerate(row)]
    return Reply(*values)


def pack_samples(samples: Sequence[Sample]) -> Row:
    """Columns: series' names as JSON; then float64 seconds, uint32 place of the name, float64 value, int64 server."""
    names = list(dict.fromkeys(sample.series for sample in samples))
    place = {name: i for i, name in enumerate(names)}
    return (json.dumps(names), array("d", (sample.at_s for sample in samples)).tobytes(),
            array("I", (place[sample.series] for sample in samples)).tobytes(),
            array("d", (sample.value for sample in samples)).tobytes(),
            array("q", (sample.server for sample in samples)).tobytes())


def unpack_samples(row: Row) -> tuple[Sample, ...]:
    """What `pack_samples` packed.  Raises ValueError where the columns do not belong together."""
    names = json.loads(row[0])
    columns = []
    for code, packed in zip("dIdq", row[1:], strict=True):
        numbers: array[Any] = array(code)
        numbers.frombytes(packed)
        columns.append(numbers)
    return tuple(Sample(at_s, names[series], value, server)
                 for at_s, series, value, server in zip(*columns, strict=True))


def head_json(noun: Any) -> str:
    """A launch, or a trial without its replies and samples, as JSON."""
    return codec.to_json(replace(noun, replies=(), samples=()) if isinstance(noun, Trial) else noun)


def checksum(cell: Any) -> int:
    """Checksum of one cell as it is stored, whatever its type has become."""
    return zlib.crc32(ascii(cell).encode())


def body_checksum(replies: Iterable[Row], samples: Row) -> int:
    """Checksum over everything of a trial but its head: SQLite itself does not see a flipped bit in a blob."""
    crc = 0
    for row in (*replies, samples):
        crc = zlib.crc32(ascii([cell for cell in row if not isinstance(cell, bytes)]).encode(), crc)
        for cell in row:
            if isinstance(cell, bytes):
                crc = zlib.crc32(cell, crc)
    return crc


def with_body(head: Trial, replies: Iterable[Row], samples: Row) -> Trial:
    """The whole trial."""
    return replace(head, replies=tuple(map(unpack_reply, replies)), samples=unpack_samples(samples))
