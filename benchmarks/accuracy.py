"""Scores predicted speed against measurements made by others: `accuracy.py CSV CONFIGS [--fit-per-machine K]`.

CSV has one number a row (columns hardware, gpus, interconnect, model, quant, engine, engine_version, tp, pp, ep, dp,
cuda_graphs, other_flags, input_len, output_len, concurrency, metric, value, notes, source_url); CONFIGS is a folder of
config.json files named owner--model.json.  --fit-per-machine K scales all predictions of a (machine, model, engine)
by the mean log error of its first K rows, which then are not scored.

The column "left out" gives the share of rows inside intervals that the errors of all other sources give (leave one
source out); no constant of a step is fitted to any row.
"""

import argparse
import csv
import math
import statistics
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fitting import report, show_spreads, spreads
from measured import COLUMNS, Refused, Row, Shapes, read_row
from scoring import Scored, adapted, score, table

from rooftop.catalog import ledger as catalog
from rooftop.workflows.speed import ledger_for

METRICS = {"output_tok_s": "tok/s", "tpot_ms_mean": "TPOT", "itl_ms_mean": "ITL", "ttft_ms_mean": "TTFT"}
OUTSIDE = ("speculative decoding", "no configuration", "GPU ", "engine ")
"""Refusals for what lies outside the score: speculative decoding, unknown models, GPUs and engines."""


def order(scored: list[Scored], verbose: bool) -> None:
    """Pairs of layouts of the same machine, model, engine and load whose measured values differ by over 5 %."""
    groups: dict[tuple[object, ...], list[Scored]] = defaultdict(list)
    for one in scored:
        if one.row.metric == "tok/s":
            groups[one.row.load_key].append(one)
    right, pairs, widest, regrets, wide_regrets = 0, 0, 0, [], []
    for found in groups.values():
        best: dict[str, Scored] = {}
        for one in found:
            best.setdefault(str(one.row.plan.layout), one)
        ones = list(best.values())
        if len(ones) < 2:
            continue
        for number, one in enumerate(ones):
            for other in ones[:number]:
                if abs(math.log(one.row.value / other.row.value)) > math.log(1.05):
                    pairs += 1
                    faster = one.row.value > other.row.value
                    right += faster == (one.predicted > other.predicted)
                    wide = one.row.width, other.row.width
                    widest += faster == (wide[0] > wide[1])
                    if verbose and faster != (one.predicted > other.predicted):
                        print(f"wrong order: {one.row.value:.0f} ({one.predicted:.0f}) {one.row.title}\n"
                              f"             {other.row.value:.0f} ({other.predicted:.0f}) {other.row.title}")
        top = max(one.row.value for one in ones)
        regrets.append(1 - max(ones, key=lambda one: one.predicted).row.value / top)
        wide_regrets.append(1 - max(ones, key=lambda one: one.row.width).row.value / top)
    if pairs:
        print(f"\norder: {right} of {pairs} pairs right ({right / pairs:.0%}), always-widest tp {widest / pairs:.0%}; "
              f"regret over {len(regrets)} choices: mean {statistics.fmean(regrets):.1%}, "
              f"worst {max(regrets):.1%}; always-widest {statistics.fmean(wide_regrets):.1%}")


def read_rows(file: Path, shapes: Shapes) -> tuple[list[Row], Counter[str], Counter[str]]:
    rows: list[Row] = []
    refused: Counter[str] = Counter()
    total: Counter[str] = Counter()
    with file.open(newline="", encoding="utf-8") as lines:
        for found in csv.DictReader(lines):
            fields = {name: (found.get(name) or "").strip() for name in COLUMNS}
            if fields["metric"] not in METRICS:
                continue
            total["rows"] += 1
            try:
                rows.append(read_row(fields, METRICS[fields["metric"]], shapes))
            except Refused as why:
                refused[str(why)] += 1
    return rows, refused, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("configs", type=Path)
    parser.add_argument("--fit-per-machine", type=int, default=0, metavar="K")
    parser.add_argument("-v", "--verbose", action="store_true", help="one line a row")
    parser.add_argument("--fit", action="store_true", help="fit the ledger's constants; errors of held-out sources")
    parser.add_argument("--tables", action="store_true", help="kernel times of an installed aiconfigurator-core")
    parser.add_argument("--spreads", action="store_true", help="the spread of errors, and its held-out coverage")
    options = parser.parse_args()
    begin = time.monotonic()
    shapes = Shapes(options.configs)
    rows, refused, total = read_rows(options.csv, shapes)
    ledger = catalog.known()
    if options.fit:
        report(rows, ledger)
        return
    scored = score(rows, ledger, ledger_for if options.tables else None, refused)
    answered = len(scored)
    if options.fit_per_machine:
        scored = adapted(scored, options.fit_per_machine)
    if options.verbose:
        for one in sorted(scored, key=lambda one: (one.row.kind, one.row.source, one.row.title)):
            print(f"{one.row.kind[:6]:6s} {one.row.metric:5s} {one.row.value:9.2f} {one.predicted:9.2f} "
                  f"{one.error:+6.2f} {one.bound:12s} {one.row.title}")
    outside = sum(count for why, count in refused.items() if why.startswith(OUTSIDE))
    inside = total["rows"] - outside
    print(f"{total['rows']} rows, {answered} answered, {sum(refused.values())} refused; of the {inside} with a "
          f"configuration, a known GPU and supported settings {answered / max(1, inside):.1%} are answered")
    for why, count in refused.most_common():
        print(f"{count:6d} {why}")
    if shapes.alike:
        print(f"read as the nearest known family: {', '.join(sorted(shapes.alike))}")
    sources = sorted({one.row.source for one in scored})
    table(scored, ledger, {source: spreads([one for one in scored if one.row.source != source]) for source in sources})
    beyond = [one for one in scored if one.impossible]
    if beyond:
        print(f"\n{len(beyond)} rows are faster than what a token must read takes at the data sheet's bandwidth: "
              + "; ".join(sorted({one.row.title[:60] for one in beyond})[:3]))
    if options.spreads:
        print()
        show_spreads(scored)
    order(scored, options.verbose)
    print(f"\n{time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
