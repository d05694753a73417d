"""The whole error tree on one page, with exit codes.

    RooftopError
    ├── Expected: the answer is no, and that is an answer
    │   ├── DoesNotFit         3   the model does not fit; says the nearest change that fits
    │   ├── NoLayout           3   no legal layout; says which rule refuses it
    │   ├── SloNotMet          3   no configuration meets the objective
    │   └── ClaimBroken        4   the engine runs something other than what was asked
    └── Failure: something went wrong
        ├── BadInput           2   a user's file, flag or value is wrong
        ├── MissingPart        2   an optional program, package or weight file is not here
        ├── ServerUnreachable  5   nothing answers at the URL
        ├── ServerRefused      5   it answers, but not with what was asked (401, 404, HTML)
        ├── LaunchFailed       6   an engine did not start; carries the log's own reason and tail
        ├── EngineDied         6   an engine ended while it was measured
        ├── StoreFailed        7   the store cannot be read or written
        ├── ProbeFailed        8   the hardware could not be read
        └── Interrupted      130   Ctrl-C; what was measured is kept

Each says what happened, where, and what to do.  Exit code 1 is a defect of rooftop itself.
"""


class RooftopError(Exception):
    """An error for a person: what happened, where, and what to do about it.

    `what` is one sentence; `where` names the file, URL or flag ("" if it is plain from `what`);
    `remedy` is the next step to take ("" if there is none to name).
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    @property
    def kind(self) -> str:
        """The name of the class, as scripts read it from `--json`."""
        return type(self).__name__


class Expected(RooftopError):  # noqa: N818
    """The answer is no, and that is an answer."""


class DoesNotFit(Expected):
    """The model does not fit on the machine in this layout."""

    exit_code = 3


class NoLayout(Expected):
    """No legal layout: a rule refuses it."""

    exit_code = 3


class SloNotMet(Expected):
    """No configuration meets the service-level objective."""

    exit_code = 3


class ClaimBroken(Expected):
    """The engine runs something other than what was asked."""

    exit_code = 4


class Failure(RooftopError):  # noqa: N818
    """Something went wrong."""


class BadInput(Failure):
    """A user's file, flag or value is wrong."""

    exit_code = 2


class MissingPart(Failure):
    """An optional program, package or weight file is not here."""

    exit_code = 2


class ServerUnreachable(Failure):
    """Nothing answers at the URL."""

    exit_code = 5


class ServerRefused(Failure):
    """The server answers, but not with what was asked."""

    exit_code = 5


class LaunchFailed(Failure):
    """An engine did not start; `tail` holds the last lines of its log."""

    exit_code = 6

    def __init__(self, what: str, *, where: str = "", remedy: str = "", tail: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.tail = tail


class EngineDied(Failure):
    """An engine ended while it was measured."""

    exit_code = 6


class StoreFailed(Failure):
    """The store cannot be read or written."""

    exit_code = 7


class ProbeFailed(Failure):
    """The hardware could not be read."""

    exit_code = 8


class Interrupted(Failure):
    """Stopped by the user; what was measured is kept."""

    exit_code = 130
