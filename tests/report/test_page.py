import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rooftop.domain.launch import Claim, Evidence
from rooftop.domain.layout import Layout
from rooftop.domain.machine import Machine
from rooftop.domain.matrix import Matrix, Row
from rooftop.report.page import bench_page, page
from rooftop.stats.summary import summarise
from tests.report import sample

VOID = {"meta", "br", "hr", "img", "link", "input"}
EVIL = '<img src=x onerror=alert(1)>"\'&</style></title><script>'


class Reader(HTMLParser):
    """Follows a page: open tags must close in order; keeps tags, attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    @property
    def words(self):
        return re.sub(r"\s+", " ", " ".join(self.text))


def bench(trials):
    return bench_page(trials, [summarise(trial) for trial in trials])


@pytest.fixture(scope="module")
def study_page():
    return page(sample.matrix(), sample.all_trials())


@pytest.mark.parametrize("text", [page(sample.matrix(), sample.all_trials()), page(sample.matrix()),
                                  bench(sample.trials()), bench(sample.trials()[:1])])
def test_pages_are_well_formed_and_load_nothing(text):
    read = Reader(text)
    assert "script" not in read.tags
    assert not [one for one in read.attributes if one[1] in ("src", "href", "xlink:href", "srcset", "action")]
    assert "url(" not in text
    assert "@import" not in text
    assert all(not re.search("https?:", value or "") for _, _, value in read.attributes)


def test_the_answer_comes_first(study_page):
    words = Reader(study_page).words
    order = ["Which setup serves SmolLM2-135M fastest?", "Best for one user", "64.8 ±0.7 tokens/s per user",
             "Not proven", "Best for throughput", "eight slots at 8 users", "36 % (33 to 39 %) ahead of",
             "of this machine only", "Setups and load levels", "What did not run as asked", "How it scales",
             "Inside the engine", "Start-up", "Every latency", "Conditions", "What the figures mean"]
    places = [words.index(part) for part in order]
    assert places == sorted(places)


def test_failures_tell_the_logs_reason_and_what_to_do(study_page):
    words = Reader(study_page).words
    assert "did not start: V cache quantization requires flash_attn (during create context)" in words
    assert "leave out cache-type-v, or set flash-attn to on" in words
    assert "not ranked: a server ended during repeat 2" in words
    assert "log line 212" in words


def test_a_void_cell_shows_no_figure_in_matrix_and_curves(study_page):
    assert "dp 2, one thread each, 8 users: 139" not in study_page
    assert "eight slots, 8 users: 151" in study_page


def test_requests_that_waited_are_told(study_page):
    assert "Requests waited in one slot: at 8 users up to 7 stood in the engine" in Reader(study_page).words


def test_no_telemetry_no_claim_about_waiting():
    assert "Inside the engine" not in page(sample.matrix())


@pytest.mark.parametrize(("setups", "unit"), [((sample.ONE, sample.EIGHT), "s"), ((sample.EIGHT, sample.DP), "ms")])
def test_short_waits_are_drawn_in_ms(setups, unit):
    matrix = sample.matrix()
    kept = replace(matrix, cells=tuple(cell for cell in matrix.cells if cell.setup in setups))
    assert f"TTFT p50 in {unit}; less is better" in Reader(page(kept)).words


def test_one_level_draws_no_curve_but_the_trade_off():
    matrix = sample.matrix()
    words = Reader(page(replace(matrix, levels=("4",)))).words
    assert "The trade-off" in words
    assert "Time to first token" not in words


def test_conditions_and_definitions_are_there(study_page):
    words = Reader(study_page).words
    for part in ("Intel Xeon Gold 6338", "sha256", "every prompt unique", "kernel stamps", "llama.cpp b6942",
                 "--port 41003 -np 4 -t 1", "time to first token:", "inter-token latency"):
        assert part in words


def test_a_broken_claim_and_other_answers_are_told():
    proof = Evidence("layout.tp", 4, "built", "log", 77, "tensor parallel size 4")
    row = Row("tp 8", Layout(tp=8), broken=(Claim("layout.tp", 8, 4, False, proof),), same_text=False)
    matrix = replace(sample.matrix(), rows=(*sample.matrix().rows, row))
    words = Reader(page(matrix)).words
    assert "layout.tp: asked 8, the engine runs 4 (log:77 tensor parallel size 4)" in words
    assert "Answers differ" in words


def test_hostile_words_stay_words():
    matrix = sample.matrix()
    rows = tuple(replace(row, setup=f"{row.setup}{EVIL}", settings=EVIL, commands=(EVIL,), log=EVIL,
                         fault=row.fault and replace(row.fault, reason=EVIL, remedy=EVIL, last_phase=EVIL, kind=EVIL))
                 for row in matrix.rows)
    cells = tuple(replace(cell, setup=f"{cell.setup}{EVIL}", why_not=EVIL) for cell in matrix.cells)
    best = tuple(replace(one, winner=EVIL, runner_up=EVIL, why=EVIL) for one in matrix.best)
    hostile = replace(matrix, study=EVIL, model=EVIL, engine=EVIL, machine=Machine(EVIL, EVIL, 1, 1), rows=rows,
                      cells=cells, best=best, load=EVIL, conditions=((EVIL, EVIL),), warnings=(EVIL,), started_at=EVIL)
    trials = [replace(trial, notes=(EVIL,)) for trial in sample.all_trials()]
    read = Reader(page(hostile, trials))
    assert not {"img", "script"} & set(read.tags)
    assert read.tags.count("style") == 1
    assert "<img src=x" in read.words


def test_an_empty_matrix_says_that_nothing_was_measured():
    matrix = Matrix("none", "m", "e", sample.MACHINE, ("1",), (Row("a"),), ())
    assert "No valid figure was measured" in Reader(page(matrix)).words


def test_bench_page_shows_levels_failures_and_what_is_missing():
    words = Reader(bench(sample.trials())).words
    for part in ("How fast is SmolLM2-135M served?", "8 users", "1 of 24", "8 users: 1 x cut",
                 "Prompt lengths are approximate", "requests, there are 12"):
        assert part in words


def test_bench_page_pools_repeats_of_a_level():
    first = sample.trials()[2]
    second = replace(first, id="again", repeat=1)
    rows = re.findall(r'<th scope="row">(.*?)</th>', bench([first, second]))
    assert rows == ["4 users"]
