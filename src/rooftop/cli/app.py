"""The commands of rooftop: words in, workflows called, nouns handed to the tables."""

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, get_args

import click

from rooftop import __version__
from rooftop.cli.options import POSITIVE, SECONDS, Numbers, check_place, json_option, store_option, write
from rooftop.cli.reading import adopt, machine, model, plan_command, verify
from rooftop.domain.workload import Api
from rooftop.errors import BadInput, Interrupted, RooftopError, StoreFailed

F = TypeVar("F", bound=Callable[..., Any])

REPORT = "rooftop-report.html"
READER_GONE = 141
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="rooftop")
def rooftop() -> None:
    """Which parallel layout serves this LLM fastest here, and how do we know?"""


for command in (verify, model, machine, plan_command, adopt):
    rooftop.add_command(command)


@rooftop.command()
@click.argument("urls", metavar="URL...", nargs=-1)
@click.option("--model", default="", help="Model name as the server knows it (default: its only one).")
@click.option("--api", type=click.Choice(get_args(Api)), help="API to use (default: what the server has).")
@click.option("--concurrency", type=Numbers(int), default="1", show_default=True, help="Users at once, a level each.")
@click.option("--rate", "rates", type=Numbers(float), default=(), help="Requests a second, a level each (open loop).")
@click.option("--arrivals", type=click.Choice(["poisson", "constant", "gamma"]), default="poisson", show_default=True,
              help="Arrivals of --rate levels.")
@click.option("--cv", type=SECONDS, default=1.0, help="Coefficient of variation of gamma arrivals.")
@click.option("--ramp", "ramp_s", type=click.FloatRange(min=0), default=0.0, help="Seconds over which --rate rises.")
@click.option("--input-tokens", type=POSITIVE, default=128, show_default=True, help="Prompt length.")
@click.option("--output-tokens", type=POSITIVE, default=128, show_default=True, help="Reply length.")
@click.option("--shared-prefix", "shared_prefix_tokens", type=click.IntRange(min=0), default=0,
              help="Leading prompt tokens that all requests share (default: none, every prompt is unique).")
@click.option("--natural", is_flag=True, help="Let replies end where the model ends them.")
@click.option("--requests", type=POSITIVE, help="Requests of each level (default: 8 a user).")
@click.option("--seconds", type=SECONDS, help="Length of each level.")
@click.option("--precision", type=click.FloatRange(0, 1, min_open=True),
              help="End a level when output tokens/s is known to this share (0.05 = 5 %).")
@click.option("--repeats", type=POSITIVE, default=1, show_default=True, help="Times each level runs, interleaved.")
@click.option("--seed", type=int, default=0, help="Seed of prompts and arrivals.")
@click.option("--tokenizer", default="", metavar="PATH", help="A tokenizer.json or its folder, for exact prompts.")
@click.option("--api-key-env", "key_env", default="", metavar="NAME", help="Environment variable with the API key.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Extra request header.")
@click.option("--insecure", is_flag=True, help="Do not check TLS certificates.")
@click.option("--timeout", "timeout_s", type=SECONDS, default=120.0, show_default=True,
              help="Seconds of silence after which a stream counts as stalled.")
@click.option("--processes", type=POSITIVE, default=1, show_default=True,
              help="Load processes that share each level; more only where a result says so.")
@click.option("--self-test", is_flag=True, help="Measure this client against a server with known timings, then stop.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML report here.")
@store_option
@json_option
def bench(urls: tuple[str, ...], headers: tuple[str, ...], insecure: bool, self_test: bool, report: Path | None,
          store: Path, as_json: bool, **options: Any) -> None:
    """Measure the OpenAI-compatible server at URL (several URLs: replicas of one)."""
    from rooftop.cli.show_progress import listening
    from rooftop.store import Store
    from rooftop.workflows import bench as workflow

    with listening(as_json) as tell:
        if self_test:
            from rooftop.cli import show
            from rooftop.load.selftest import self_test as test

            show.show_self_test(test(tell), as_json)
            return
        if not urls:
            raise BadInput("no URL given", remedy="for example: rooftop bench http://127.0.0.1:8000")
        if report:
            check_place(report)
        asked = workflow.Bench(urls=urls, headers=_headers(headers), verify_tls=not insecure, **options)
        with Store.open(store) as opened:
            trials = workflow.bench(asked, store=opened, tell=tell)
    from rooftop.cli import show
    from rooftop.stats.summary import summarise

    measurements = [summarise(trial) for trial in trials]
    show.show_bench(trials, measurements, as_json)
    if report:
        from rooftop.report.page import bench_page

        write(report, bench_page(trials, measurements))


@rooftop.command()
@click.argument("file", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Print the commands and the estimated time; start nothing.")
@click.option("--retry-failed", is_flag=True, help="Try setups again that did not start before.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), default=REPORT, show_default=True,
              help="Where the HTML report goes.")
@store_option
@json_option
def study(file: str, dry_run: bool, retry_failed: bool, report: Path, store: Path, as_json: bool) -> None:
    """Launch, verify and measure each setup of the study FILE (or of a study that rooftop brings along).

    Run it again to go on where it stopped.
    """
    from rooftop.cli import show
    from rooftop.cli.show_progress import listening
    from rooftop.store import Store
    from rooftop.workflows.rehearse import rehearse
    from rooftop.workflows.steps import engine_of, read_study
    from rooftop.workflows.study import run_study

    asked = read_study(file)
    if dry_run:
        with contextlib.ExitStack() as stack:
            known = stack.enter_context(Store.open(store, read_only=True)) if store.exists() else None
            show.show_dry_run(rehearse(asked, engine_of(asked), known), as_json)
        return
    check_place(report)
    with Store.open(store) as opened:
        with listening(as_json) as tell:
            run_study(asked, store=opened, tell=tell, retry_failed=retry_failed)
        _answer(opened, asked.name, report, as_json)


@rooftop.command("report")
@click.argument("name", metavar="[STUDY]", default="")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=REPORT, show_default=True,
              help="Where the HTML report goes.")
@store_option
@json_option
def report_command(name: str, output: Path, store: Path, as_json: bool) -> None:
    """Show what the store holds of STUDY (default: the latest) and write its report anew."""
    from rooftop.store import Store

    with Store.open(store, read_only=True) as opened:
        _answer(opened, name or opened.latest_study() or "", output, as_json)


@rooftop.command()
@click.argument("name")
@click.option("--from", "source", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Use this already downloaded file instead of the network.")
@json_option
def fetch(name: str, source: Path | None, as_json: bool) -> None:
    """Get the weights of a catalog model, checked by SHA-256."""
    from rooftop.cli import show
    from rooftop.cli.show_progress import listening
    from rooftop.workflows.fetch import fetch as get

    with listening(as_json) as tell:
        path = get(name, source=source, tell=tell)
    show.show_path("weights", path, as_json)


def _answer(store: Any, name: str, report: Path, as_json: bool) -> None:
    from rooftop.cli import show
    from rooftop.report.page import page
    from rooftop.workflows.matrix import matrix

    answer, trials = matrix(store, name)
    refused = None
    try:
        write(report, page(answer, trials))
    except BadInput as error:
        refused = error
    if refused is None or not as_json:
        show.show_matrix(answer, as_json)
    if refused is not None:
        raise refused
    if not as_json:
        show.show_path("report", report)


def _headers(lines: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise BadInput(f"--header {line!r} has no colon", remedy="write it as 'Name: value'")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


def _terminate(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; every error ends as one screen and its exit code.

    Where the reader of a pipe has gone (`rooftop report | head -1`), rich and click leave with 1, which here is a
    defect of rooftop; a shell knows that end as 141.  A terminal that is gone (SIGHUP) ends a run as Ctrl-C does.
    """
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _terminate)
    as_json = "--json" in sys.argv
    try:
        code = rooftop.main(prog_name="rooftop", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(_fail(Interrupted("stopped"), as_json))
    except click.ClickException as error:
        if as_json:
            sys.exit(_fail(BadInput(error.format_message(), remedy="see --help"), as_json))
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(_fail(Interrupted("stopped"), as_json))
    except SystemExit as left:
        sys.exit(READER_GONE if left.code == 1 else left.code)
    except RooftopError as error:
        sys.exit(_fail(error, as_json))
    except OSError as error:
        sys.exit(_fail(_full(error), as_json=False) if error.errno in FULL else _defect(error, as_json))
    except Exception as error:  # noqa: BLE001  # the one place: a defect ends as a message, not as a bare traceback
        sys.exit(_defect(error, as_json))
    sys.exit(code if isinstance(code, int) else 0)


def _fail(error: RooftopError, as_json: bool) -> int:
    from rooftop.cli import show

    show.show_error(error, as_json)
    return error.exit_code


def _full(error: OSError) -> StoreFailed:
    try:
        sys.stdout.flush()
    except OSError:  # drop it: Python would try again at its end, and leave with 120
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    where = str(error.filename or "")
    return StoreFailed(f"what should be written has no place: {error.strerror}", where=where,
                       remedy="free space where the output goes; what was measured before is in the store")


def _defect(error: Exception, as_json: bool) -> int:
    if as_json:
        from rooftop.cli import show

        show.show_json({"error": {"kind": "Defect", "what": repr(error), "where": "", "remedy": ""}})
    import traceback

    click.echo("".join(traceback.format_exception(error)), err=True)
    click.echo("This is a defect of rooftop itself; the lines above tell its authors where.", err=True)
    return 1
