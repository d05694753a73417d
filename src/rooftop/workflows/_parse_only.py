"""Runs a Python engine's own entry point up to its parser, in that engine's Python; needs nothing of rooftop.

The order comes as JSON on the standard input: `program` (a script) or `module`, `commands` (the words after it and
the variables of each), `port` (theirs), `answer` (the file to write).  The answer is one table a command: `verdict` is
"taken", "refused" or "unknown" (the parser was not reached, which is no refusal), `words` what the parser said,
`flags` the options that it knows where it refused.  No server is started: the entry point is left as soon as it has
parsed, and the process ends where it binds the port.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import runpy
import sys

UNKNOWN = {"verdict": "unknown", "words": "", "flags": []}
PARSED = "the parser has taken the command"


def _options(parser: argparse.ArgumentParser) -> set[str]:
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found |= _options(below)
    return found


def _stop(*_: object, **__: object) -> None:
    raise SystemExit(PARSED)


def _watch(seen: list[argparse.ArgumentParser]) -> None:
    """Have each parser noted that is asked, and the entry point left once one of them has taken the command."""
    original = argparse.ArgumentParser.parse_args

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        seen.append(self)
        given = original(self, args, namespace)
        if not hasattr(given, "dispatch_function"):
            raise SystemExit(PARSED)
        given.dispatch_function = _stop
        return given

    argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign]


def _ask(order: dict, words: list[str], variables: dict[str, str], seen: list[argparse.ArgumentParser]) -> dict:  # type: ignore[type-arg]
    seen.clear()
    said = io.StringIO()
    sys.argv = [order.get("program") or order["module"], *words]
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            if order.get("program"):
                runpy.run_path(order["program"], run_name="__main__")
            else:
                runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    except SystemExit as left:
        if left.code == PARSED:
            return {**UNKNOWN, "verdict": "taken"}
        if left.code in (0, None) or not seen:
            return UNKNOWN
        text = said.getvalue() if isinstance(left.code, int) else str(left.code)
    except (ValueError, TypeError) as error:
        if not seen:
            return UNKNOWN
        text = f"{type(error).__name__}: {error}"
    except (ImportError, OSError, RuntimeError, AttributeError, LookupError) as error:
        return {**UNKNOWN, "words": f"{type(error).__name__}: {error}"}
    else:
        return UNKNOWN
    finally:
        os.environ.clear()
        os.environ.update(before)
    return {"verdict": "refused", "words": text, "flags": sorted(set().union(*map(_options, seen)))}


def main() -> None:
    """Answer the order."""
    order = json.load(sys.stdin)
    seen: list[argparse.ArgumentParser] = []

    def guard(event: str, arguments: tuple) -> None:  # type: ignore[type-arg]
        if event == "socket.bind" and isinstance(arguments[1], tuple) and arguments[1][1] == order["port"]:
            os._exit(3)

    sys.addaudithook(guard)
    _watch(seen)
    answers = [_ask(order, words, variables, seen) for words, variables in order["commands"]]
    pathlib.Path(order["answer"]).write_text(json.dumps(answers), encoding="utf-8")
    os._exit(0)


if __name__ == "__main__":
    main()
