"""Deployments that fit, as a terminal table: users, cache, memory, refusals, the command."""

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rooftop import units
from rooftop.cli.show import console, show_json
from rooftop.domain import codec
from rooftop.domain.fit import Fit, Option, Proposal, Refused, Stage, Use

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

ROWS = 12
PURPOSES = ("weights", "kv cache", "states", "activations", "graphs", "runtime", "system")


def show_plan(proposal: Proposal, as_json: bool = False, rows: int = ROWS) -> None:
    """The first `rows` deployments that fit, the memory and the command of the first, and every refusal in a line."""
    if as_json:
        show_json(plan_table(proposal))
        return
    out = console()
    for part in plan_parts(proposal, rows):
        out.print(part)


def plan_table(proposal: Proposal) -> dict[str, Any]:
    """For scripts: the noun's own fields; each option with the command as one line and what follows from its fit."""
    table: dict[str, Any] = codec.to_plain(proposal)
    for plain, option in zip(table["options"], proposal.options, strict=True):
        plain["command_line"] = shlex.join(option.command.argv)
        plain["fit"] |= {"fits": option.fit.fits, "left_bytes": option.fit.left_bytes}
    return table


def plan_parts(proposal: Proposal, rows: int = ROWS) -> Iterator["RenderableType"]:
    """Title, options, memory of the first one, its command, refusals, notes."""
    from rich.text import Text

    machine = proposal.machine
    lengths = f"{proposal.input_tokens} + {proposal.output_tokens} tokens a request"
    yield Text.assemble((f"\n{proposal.model} on {machine.name}", "bold"), f": {lengths}")
    yield Text()
    yield _options(proposal.options[:rows])
    if len(proposal.options) > rows:
        yield Text(f"{len(proposal.options) - rows} more fit: --json has all", "dim")
    first = proposal.options[0]
    if first.one is not None:
        yield Text("\nSpeed", "bold")
        yield _speeds(proposal.options[:rows])
    for gain in proposal.gains:
        yield Text(f"{gain.remedy}: {gain.gain}; {gain.claim}", "green")
    yield Text(f"\nMemory of one GPU: {first.plan.engine}, {first.fit.layout}", "bold")
    yield _memory(first.fit)
    for note in first.fit.notes:
        yield Text(f"note: {note}", "yellow")
    yield Text("\nCommand", "bold")
    yield Text(shlex.join(first.command.argv), overflow="fold")
    if proposal.refused:
        yield Text("\nRefused", "bold")
        for refused in proposal.refused:
            yield _refused(refused)
    for note in proposal.notes:
        yield Text(f"note: {note}", "dim")


def count(number: float) -> str:
    """Tokens: `12 345`, `1.46 M`."""
    return f"{units.number(number / 1e6)} M" if number >= 999_500 else units.number(number)


def _options(options: Sequence[Option]) -> "RenderableType":
    table = _table("engine", "layout", "users", "up to", "KV tokens", "weights", "cache", "left")
    for option in options:
        fit, stage = option.fit, option.fit.fullest
        ended = "" if fit.bound == "KV cache" else "*"
        pools = f"{fit.pools} x " if fit.pools > 1 else ""
        table.add_row(fit.engine, str(fit.layout), f"{fit.users}{ended}",
                      str(fit.raised_users) if fit.raised_users > fit.users else "", f"{pools}{count(fit.kv_tokens)}",
                      _gib(stage.bytes_of("weights")), _gib(stage.bytes_of("kv cache") + stage.bytes_of("states")),
                      _gib(fit.left_bytes))
    bounds = sorted({option.fit.bound for option in options if option.fit.bound != "KV cache"})
    about = [f"* ended by {', '.join(bounds)}"] if bounds else []
    if any(option.fit.raised_users > option.fit.users for option in options):
        about.append("up to: with the engine's share of memory raised as far as the estimates allow")
    table.caption, table.caption_justify = "; ".join(about), "left"
    return table


def _speeds(options: Sequence[Option]) -> "RenderableType":
    """Predicted tokens/s of one user and of all that fit, what bounds the one, and the users within the objective."""
    limited = any(option.within is not None for option in options)
    table = _table("engine", "layout", "1 user", "80 % interval", "all users", "bound", "of limit",
                   *(("in SLO",) if limited else ()))
    for option in options:
        one, many, within = option.one, option.many, option.within
        if one is not None and many is not None:
            span = one.interval
            table.add_row(option.fit.engine, str(option.fit.layout), units.number(one.value),
                          f"{units.number(span.low)} to {units.number(span.high)}" if span else "",
                          units.number(many.value), one.bound, units.share(one.share),
                          *((str(within),) if limited else ()))
    table.caption = "tok/s, predicted; of all users by a queueing bound"
    table.caption_justify = "left"
    return table


def _memory(fit: Fit) -> "RenderableType":
    """By purpose on the GPU that bounds the cache; weights by part, with what other ranks hold too."""
    table = _table("purpose", "GiB", "interval", "", left=(0, 3))
    stage = fit.fullest
    for purpose in PURPOSES:
        for use in (one for one in stage.uses if one.purpose == purpose):
            what = f"weights: {use.part.replace('_', ' ')}" if use.part else purpose
            table.add_row(what, _gib(use.bytes), _interval(use), _about(use, stage))
    table.add_row("left", _gib(stage.left_bytes), "", "")
    low, high = fit.kv_tokens_low, fit.kv_tokens_high
    spread = f", {count(low)} to {count(high)} within the estimates" if low is not None and high is not None else ""
    more = (f"; --{fit.raised.name} {fit.raised.value}: {count(fit.raised_tokens)} tokens" if fit.raised else "")
    table.caption = f"{count(fit.kv_tokens)} tokens in {'each' if fit.pools > 1 else 'the'} KV pool{spread}{more}"
    table.caption_justify = "left"
    return table


def _interval(use: Use) -> str:
    if use.basis != "estimate":
        return ""
    return "no interval" if use.low is None or use.high is None else f"{_gib(use.low)} to {_gib(use.high)}"


def _about(use: Use, stage: Stage) -> str:
    """How a figure came about; a part of the weights that every rank holds says so."""
    if use.purpose == "kv cache":
        return f"{units.size(stage.token_bytes)} a token"
    return f"{_gib(use.copied)} copied to other ranks" if use.copied > 0.05 * 2**30 else use.note


def _refused(refused: Refused) -> "RenderableType":
    from rich.text import Text

    more = f" and {len(refused.layouts) - 1} more" if len(refused.layouts) > 1 else ""
    remedy = f"; {refused.refusal.remedy}" if refused.refusal.remedy else ""
    return Text.assemble((f"{refused.engine} {refused.layouts[0]}{more}: ", "cyan"),
                         f"{refused.refusal.reason}{remedy}")


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f}"


def _table(*titles: str, left: tuple[int, ...] = (0, 1)) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number in left else "right",
                         overflow="fold" if number in left else "ellipsis", no_wrap=number not in left)
    return table
