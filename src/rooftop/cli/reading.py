"""Commands that start and measure nothing: verify, model, machine, plan, adopt."""

import sys
from pathlib import Path
from typing import Any

import click

from rooftop.cli.options import POSITIVE, json_option, write
from rooftop.errors import BadInput, ClaimBroken, LaunchFailed


@click.command()
@click.option("--log", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="An engine's log.")
@click.option("--url", help="A running server.")
@click.option("--plan", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="What was asked, a Plan in TOML or JSON (default: what the engine says it was asked).")
@click.option("--engine", default="", help="The engine it is of (default: the one that finds the most in it).")
@click.option("--facts", is_flag=True, help="Only the facts, without claims.")
@json_option
def verify(log: Path | None, url: str | None, plan: Path | None, engine: str, facts: bool, as_json: bool) -> None:
    """Hold what an engine says of itself, in a log or at a URL, against what was asked.

    Exit code 4 where a claim is broken, 6 where the log says that the engine failed.
    """
    from rooftop.cli.show_audit import show_audit
    from rooftop.domain.vocabulary import stops
    from rooftop.workflows.audit import audit_log, audit_server, read_plan

    if (log is None) == (url is None):
        raise BadInput("name either a log or a URL", remedy="rooftop verify --log FILE, or --url URL")
    asked = read_plan(plan) if plan else None
    if log is not None:
        audit = audit_log(log, engine=engine, plan=asked)
    else:
        audit = audit_server(url or "", engine=engine, plan=asked)
    show_audit(audit, only_facts=facts, as_json=as_json)
    if audit.broken and not facts:
        sys.exit(ClaimBroken.exit_code)
    if audit.fault is not None and stops(audit.fault.kind) and not facts:
        sys.exit(LaunchFailed.exit_code)


@click.command()
@click.argument("path", metavar="PATH")
@json_option
def model(path: str, as_json: bool) -> None:
    """Show what a model is made of: parameters, bytes, KV cache, FLOPs (PATH: folder, config.json or GGUF file)."""
    from rooftop.cli.show_model import show_model
    from rooftop.workflows.look import look_at_model

    show_model(look_at_model(path), as_json)


@click.command()
@click.argument("name", metavar="[NAME]", default="")
@click.option("--record", type=click.Path(file_okay=False, path_type=Path),
              help="Keep what the machine's own tools say in this folder, so that it can be read again elsewhere.")
@json_option
def machine(name: str, record: Path | None, as_json: bool) -> None:
    """Show a machine's GPUs, links and what about them costs people days.

    NAME: of the catalog, `8x RTX PRO 6000`, ssh:HOST, a TOML file or a recorded folder (default: this machine).
    """
    from rooftop.cli.show_machine import show_machine
    from rooftop.workflows.look_machine import look_at_machine
    from rooftop.workflows.machine_warnings import warnings

    found = look_at_machine(name or None, record=record)
    show_machine(found, warnings(found), as_json)


@click.command("plan")
@click.argument("model_path", metavar="MODEL")
@click.option("--machine", "machine_name", help="Machine, as for `rooftop machine` (default: this one).")
@click.option("--engine", "engines", multiple=True, help="Engine to plan for (default: all that apply).")
@click.option("--input-tokens", type=POSITIVE, default=1024, show_default=True, help="Prompt length of a user.")
@click.option("--output-tokens", type=POSITIVE, default=1024, show_default=True, help="Reply length of a user.")
@click.option("--gpus", type=POSITIVE, help="GPUs to use (default: all of the machine).")
@click.option("--goal", default="users", show_default=True, help="Best first: users, one (user), many, slo.")
@click.option("--ttft-ms", type=POSITIVE, help="Longest mean time to the first token.")
@click.option("--tpot-ms", type=POSITIVE, help="Longest mean time between tokens.")
@click.option("--rows", type=POSITIVE, default=12, show_default=True, help="Layouts to show.")
@json_option
def plan_command(model_path: str, machine_name: str | None, engines: tuple[str, ...], rows: int, as_json: bool,
                 **asked: Any) -> None:
    """Show which layouts of MODEL fit on a machine, for how many users, and why the others are refused."""
    from rooftop.cli.show_plan import show_plan
    from rooftop.workflows.plan import plan as propose
    from rooftop.workflows.speed import Aim

    aim = Aim(asked.pop("goal"), asked.pop("ttft_ms"), asked.pop("tpot_ms"))
    show_plan(propose(model_path, machine_name, engines=engines, aim=aim, **asked), as_json, rows=rows)


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--part", default="", help="Which engine of several: a service, a container, a line.")
@click.option("--study", "study_file", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT",
              help="Write a study with the deployment as its first setup.")
@click.option("--from", "source", metavar="STUDY", help="Hand back a setup of this study ...")
@click.option("--setup", "title", default="", help="... the one of this title.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
              help="Where the changed deployment goes (default: stdout).")
@json_option
def adopt(file: Path, part: str, study_file: Path | None, source: str | None, title: str, output: Path | None,
          as_json: bool) -> None:
    """Read an existing command, unit, docker command, compose file or manifest; hand a chosen setup back in it."""
    from rooftop.cli.show_adopt import show_deployment
    from rooftop.workflows import adopt as workflow
    from rooftop.workflows.steps import read_study

    deployment = workflow.adopt(file, part)
    if source:
        plan = workflow.chosen(deployment, read_study(source), title)
        text = workflow.hand_over(deployment, plan)
        for caution in workflow.cautions(deployment, plan):
            click.echo(f"note: {caution}", err=True)
        if output:
            write(output, text)
        else:
            click.echo(text, nl=False)
        return
    if study_file:
        write(study_file, workflow.as_study(deployment))
    show_deployment(deployment, workflow.refuses(deployment), as_json)
