"""One-user speed of measured layouts of one model, explained by cause: `layouts.py TABLE CONFIG MACHINE`.

TABLE is a CSV file with the columns layout, tp, pp, ep, cuda_graphs, concurrency, tok_s (lines with # are left out);
CONFIG the model's config.json; MACHINE a name that `rooftop look --machine` takes.  Nothing is fitted.
"""

import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from rooftop.catalog import ledger
from rooftop.catalog.machines import machine
from rooftop.domain.layout import Layout
from rooftop.domain.model import Model
from rooftop.domain.plan import Plan, Setting
from rooftop.domain.stepcost import Cost
from rooftop.models.read import read_model
from rooftop.perfmodel.queueing import interval_s
from rooftop.perfmodel.roofline import roofline

CONTEXT = 1024
CAUSES = ("memory", "compute", "launch", "link latency", "link bandwidth", "host")
NEAR = 0.25


def main(table: Path, config: Path, place: str) -> None:
    measured: dict[tuple[str, Layout, bool], list[float]] = defaultdict(list)
    for row in csv.DictReader(line for line in table.read_text(encoding="utf-8").splitlines() if line[0] != "#"):
        if row["concurrency"] == "1" and row["tok_s"]:
            layout = Layout(int(row["tp"]), int(row["pp"]), 1, int(row["ep"]))
            measured[row["layout"], layout, row["cuda_graphs"] == "yes"].append(float(row["tok_s"]))
    architecture = read_model(str(config))
    found: list[tuple[str, float, Cost]] = []
    for (name, layout, graphs), values in measured.items():
        flags = () if graphs else (Setting("disable-cuda-graph", True),)
        plan = Plan(Model(architecture.name), "sglang", layout, flags, machine=machine(place))
        cost = interval_s(roofline(plan, architecture, ledger.known()), 1, CONTEXT)[1]
        found.append((f"{name}{'' if graphs else ', no graphs'}", 1 / statistics.median(values), cost))
    found.sort(key=lambda one: one[1])
    print(f"{'layout':18s} {'tok/s':>6s} {'model':>6s} {'off':>5s}  {'ms':>5s} {'model':>6s}   "
          + " ".join(f"{cause:>14s}" for cause in CAUSES))
    for name, seconds, cost in found:
        off = seconds / cost.seconds - 1
        word = "" if abs(off) <= NEAR else f"  unexplained: {(seconds - cost.seconds) * 1e3:+.1f} ms"
        print(f"{name:18s} {1 / seconds:6.1f} {1 / cost.seconds:6.1f} {off:+5.0%}  {seconds * 1e3:5.1f} "
              f"{cost.seconds * 1e3:6.1f}   " + " ".join(f"{cost.by_cause.get(cause, 0) * 1e3:14.2f}"
                                                        for cause in CAUSES) + word)
    first = found[0]
    print(f"\nslower than {first[0]} by, in ms a token:")
    for name, seconds, cost in found[1:]:
        names = dict.fromkeys((*cost.by_operation, *first[2].by_operation))
        parts = {one: (cost.by_operation.get(one, 0) - first[2].by_operation.get(one, 0)) * 1e3 for one in names}
        told = sorted((pair for pair in parts.items() if abs(pair[1]) >= 0.2), key=lambda pair: -abs(pair[1]))
        more, model = (seconds - first[1]) * 1e3, (cost.seconds - first[2].seconds) * 1e3
        print(f"{name:18s} measured {more:+5.1f}, model {model:+5.1f}, unexplained {more - model:+5.1f}: "
              + ", ".join(f"{one} {value:+.1f}" for one, value in told[:8]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
