"""The load processes of one level: started, set off together, followed, ended."""

import contextlib
import json
import math
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rooftop.domain.progress import Progress, Tell
from rooftop.load.spool import GO, part_folders

GRACE_S = 10.0
SILENCE_S = 120.0


@dataclass(slots=True)
class Member:
    """One load process: what it said last, and the beginning of the line it is saying."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    now: dict[str, Any] = field(default_factory=dict)
    begun: bytes = b""
    waits: bool = True
    heard_s: float = field(default_factory=time.monotonic)
    silent: bool = False


@contextlib.contextmanager
def crew(folder: Path, parts: int) -> Iterator[tuple[Member, ...]]:
    """The load processes of the level spooled in `folder`; when the block ends they have ended."""
    members: list[Member] = []
    try:
        for part, place in enumerate(part_folders(folder, parts)):
            with (place / "client.log").open("wb") as log:
                command = (sys.executable, "-P", "-m", "rooftop.load", str(folder), str(part))
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                           start_new_session=True)
            members.append(Member(process, place))
        yield tuple(members)
        for member in members:
            member.process.wait()
    finally:
        for member in members:
            _let_go(member.process)
        for member in members:
            _end(member.process)


def follow(members: tuple[Member, ...], seconds: float | None, tell: Tell) -> None:
    """Pass on what the processes say until all have no more to say; set them off once all are ready.

    When one has failed, the others are stopped: what they would measure is another load.  One that says nothing for
    two minutes (somebody stopped it, its disk hangs) has failed, and is killed.
    """
    before = (0.0, 0)
    with selectors.DefaultSelector() as selector:
        for member in members:
            if member.process.stdout is not None:
                selector.register(member.process.stdout, selectors.EVENT_READ, member)
        while selector.get_map():
            awake_s = time.monotonic()
            for key, _ in selector.select(SILENCE_S / 8):
                member = key.data
                member.heard_s = time.monotonic()
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                    member.waits = False
                    if _failed(member.folder):
                        for other in members:
                            other.waits = False
                            _let_go(other.process)
                elif _hear(member, data):
                    before = _report(members, seconds, tell, before)
            _end_silent([key.data for key in selector.get_map().values()], awake_s)
            if len(members) > 1 and all(member.now.get("stage") == "ready" or not member.waits for member in members):
                _set_off(members)


def _end_silent(members: list[Member], awake_s: float) -> None:
    """Kill those that have said nothing for too long, but for those that wait to be set off.

    Where this process itself was held (Ctrl-Z, a terminal that takes nothing) since it was `awake_s`, what they said
    may be unread: all get their time anew.
    """
    now = time.monotonic()
    held = now - awake_s > SILENCE_S / 4
    for member in members:
        if held or (member.waits and member.now.get("stage") == "ready"):
            member.heard_s = now
        elif now - member.heard_s > SILENCE_S:
            member.silent = True
            member.process.kill()


def _hear(member: Member, data: bytes) -> bool:
    """Take in what a process said; whether it was progress."""
    *lines, member.begun = (member.begun + data).split(b"\n")
    for line in lines:
        with contextlib.suppress(ValueError):
            member.now = json.loads(line)
    return bool(lines) and member.now.get("stage") not in (None, "ready")


def _set_off(members: tuple[Member, ...]) -> None:
    for member in members:
        if member.waits and member.process.stdin is not None:
            member.waits = False
            with contextlib.suppress(OSError):
                member.process.stdin.write(GO)
                member.process.stdin.flush()


def _failed(folder: Path) -> bool:
    try:
        end = json.loads((folder / "end.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    return bool(end.get("fault")) or end.get("why") == "warm-up failed"


def _report(members: tuple[Member, ...], seconds: float | None, tell: Tell,
            before: tuple[float, int]) -> tuple[float, int]:
    """One event of progress for all processes; time and chunks so far."""
    said = [member.now for member in members if member.now.get("stage") not in (None, "ready")]
    stage = "level" if any(one["stage"] == "level" for one in said) else said[0]["stage"]
    said = [one for one in said if one["stage"] == stage]
    now = {name: sum(one[name] for one in said) for name in ("done", "failed", "open", "total", "chunks")}
    at = max(one["seconds"] for one in said)
    span, chunks = at - before[0], now["chunks"] - before[1]
    speed = f"{chunks / span:.0f} chunks/s, " if span > 0 and chunks >= 0 else ""
    failed = f", {now['failed']} failed" if now["failed"] else ""
    left = at / now["done"] * (now["total"] - now["done"]) if now["total"] and now["done"] else None
    if seconds is not None and stage == "level":
        left = min(max(0.0, seconds - at), math.inf if left is None else left)
    tell(Progress(stage, f"{speed}{now['open']} open{failed}", now["done"], now["total"], left))
    return at, now["chunks"]


def _let_go(process: "subprocess.Popen[bytes]") -> None:
    """Closing its input tells a load process to stop."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """It is killed if it does not stop."""
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
