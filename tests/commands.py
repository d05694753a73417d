"""The command line in this process: words in; exit code, stdout and stderr out."""

import contextlib
import io
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from rooftop.cli import app


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """All of stdout as one JSON document."""
        return json.loads(self.out)


def rooftop(*words: object) -> Done:
    """Run a command as `rooftop WORDS` would; the signal handlers of this process stay as they are."""
    out, err = io.StringIO(), io.StringIO()
    argv: Sequence[str] = ["rooftop", *map(str, words)]
    kept = signal.getsignal(signal.SIGTERM)
    try:
        with mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            app.main()
    except SystemExit as end:
        return Done(end.code if isinstance(end.code, int) else 0, out.getvalue(), err.getvalue())
    finally:
        signal.signal(signal.SIGTERM, kept)
    raise AssertionError("main() returned")
