"""How a run is watched: the numbers, the lines, the live display, the summary."""

import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from flowgraph.cli.progress.lines import Lines, evaluation_line, step_line
from flowgraph.cli.progress.live import LiveDisplay, draw, sparkline
from flowgraph.cli.progress.tracker import Curve, Tracker, by_group
from flowgraph.cli.result_object import result_object
from flowgraph.cli.summary import conservation, print_summary
from flowgraph.report.headline import duration, headline, main_figures, number
from flowgraph.runtime.progress import Restarted, RunStarted
from tests.cli.events import Clock, evaluation, result, step, whole_run

Capture = pytest.CaptureFixture[str]


def watched(steps: int, of: int = 100, apart: float = 0.5) -> Tracker:
    """A tracker after `steps` steps, `apart` seconds apart by the clock."""
    clock = Clock()
    tracker = Tracker(clock)
    tracker.observe(RunStarted(steps=of))
    for i in range(steps):
        clock.now += apart
        tracker.observe(step(i))
    return tracker


def test_rates_come_from_recent_steps_and_the_end_from_the_clock() -> None:
    tracker = watched(40, apart=0.75)
    assert tracker.tokens_a_second == pytest.approx(200.0)  # 100 tokens in 0.5 s of a step
    assert tracker.remaining_seconds == pytest.approx(60 * 0.75)
    assert tracker.busy == pytest.approx({"host-0": 0.5, "solver.gang-0": 0.25})


def test_the_first_step_is_not_blamed_for_the_evaluation_before_it() -> None:
    clock = Clock()
    tracker = Tracker(clock)
    tracker.observe(RunStarted(steps=10))
    clock.now = 30.0
    tracker.observe(evaluation(0))
    clock.now = 30.5
    tracker.observe(step(0))
    assert tracker.remaining_seconds == pytest.approx(9 * 0.5)


def test_before_the_first_step_nothing_is_promised() -> None:
    tracker = watched(0)
    assert tracker.remaining_seconds is None
    assert tracker.tokens_a_second == 0.0
    assert step_line(tracker) == "step 0/100  0 tokens/s"


def test_modules_are_shown_by_what_they_achieve_and_technical_ones_not_at_all() -> None:
    line = step_line(watched(100))
    assert line.startswith("step 100/100  solver reward 0.895  play team 0.250  200 tokens/s")
    assert "busy host-0 50% solver.gang-0 25%" in line
    assert "vit" not in line
    assert "eta" not in line


def test_lines_are_printed_rarely_but_the_first_and_the_last_step_always(capsys: Capture) -> None:
    clock = Clock()
    lines = Lines(Tracker(clock), to_stderr=True, now=clock)
    with lines:
        for event in whole_run(100):
            clock.now += 0.25
            lines.observe(event)
    said = capsys.readouterr()
    assert said.out == ""
    printed = [line for line in said.err.splitlines() if line.startswith("step ")]
    assert printed[0].startswith("step 1/100 ")
    assert printed[-1].startswith("step 100/100 ")
    assert [int(line.split()[1].partition("/")[0]) for line in printed[1:-1]] == [
        *range(11, 100, 10)
    ]
    assert "2 workers ready after 0.8 s; 100 steps in all" in said.err
    assert "evaluation held-out, before the first step: exact_match 0.000  digit 0.500" in said.err


def test_a_slow_run_is_heard_of_every_quarter_of_a_minute(capsys: Capture) -> None:
    clock = Clock()
    lines = Lines(Tracker(clock), to_stderr=False, now=clock)
    lines.observe(RunStarted(steps=100))
    for i in range(4):
        clock.now += 20.0
        lines.observe(step(i))
    assert capsys.readouterr().out.count("step ") == 4


def test_a_restart_is_told_with_its_cause(capsys: Capture) -> None:
    clock = Clock()
    lines = Lines(Tracker(clock), to_stderr=False, now=clock)
    events = list(whole_run(4))
    lost = Restarted(cause="worker host-0 was killed", restart=1, of=3)
    for event in (*events[:5], lost, *events[:3]):
        lines.observe(event)
    said = capsys.readouterr().out.splitlines()
    assert "restart 1 of 3, from the last checkpoint: worker host-0 was killed" in said
    assert said[-1] == "2 workers ready again; 4 steps in all"


def test_a_run_that_may_spill_says_how_much_at_its_start(capsys: Capture) -> None:
    lines = Lines(Tracker(Clock()), to_stderr=False, now=Clock())
    lines.observe(RunStarted(steps=4, pool_bytes=64 << 20, spill_bytes=20_000_000_000))
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "each worker may keep 64 MiB in memory and 20 GB on disk of its records"


def test_an_evaluation_says_whose_weights_it_looked_at() -> None:
    assert evaluation_line(evaluation(50)).startswith("evaluation held-out, after step 50: ")


def test_the_live_display_shows_the_bar_curves_rates_shares_and_evaluations() -> None:
    console = Console(width=110)
    tracker = watched(50)
    tracker.observe(evaluation(50))
    with console.capture() as capture:
        console.print(draw(tracker, "digits"))
    text = capture.get()
    for part in ("digits", "50/100 steps", "200 tokens/s", "25 s left", "50% busy", "exact_match"):
        assert part in text
    assert "▁" in text
    assert "█" in text


def test_the_live_display_leaves_the_terminal_as_it_was() -> None:
    console = Console(width=100, force_terminal=True)
    with console.capture() as capture:
        display = LiveDisplay(Tracker(), console, name="digits", workers=2)
        with display:
            for event in whole_run(3):
                display.observe(event)
    assert capture.get().rstrip().endswith("\x1b[2K")
    assert "\x1b[?25h" in capture.get()


def test_a_spark_line_spans_its_height_and_never_its_width() -> None:
    rising = Curve("lm", "reward", [float(i) for i in range(1000)])
    line = sparkline(rising, 8)
    assert line == "▁▂▃▄▅▆▇█"
    assert sparkline(Curve("lm", "reward", [1.0, math.nan, 1.0])) == "▁▁"
    assert sparkline(Curve("lm", "reward", [])) == ""


def test_many_workers_are_shown_by_group() -> None:
    busy = {f"lm.gang-{i}": i / 16 for i in range(16)}
    assert by_group(busy) == {"lm.gang (16)": pytest.approx(7.5 / 16)}
    assert by_group({"host-0": 0.5}) == {"host-0": 0.5}


def test_the_summary_has_first_and_last_values_and_what_became_of_samples() -> None:
    console = Console(width=100)
    tracker = Tracker(Clock())
    for event in whole_run():
        tracker.observe(event)
    with console.capture() as capture:
        print_summary(console, tracker, result(), name="digits", wall_s=75.0)
    text = capture.get()
    assert "digits finished: 100 steps in 1 min 15 s" in text
    assert [line.split() for line in text.splitlines() if "reward" in line] == [
        ["solver", "reward", "0.045", "0.945"]
    ]
    assert "held-out (after step 100)  exact_match  0.000  1.000" in text
    assert "1,600 admitted = 1,598 consumed + 2 dropped + 0 in flight, on play.solver/train" in text


def test_streams_with_the_same_counts_share_a_line() -> None:
    counts = {"admitted": 8, "consumed": 8, "dropped": 0, "in_flight": 0}
    assert conservation({"a/b": counts, "b/c": counts}) == [
        "samples: 8 admitted = 8 consumed + 0 dropped + 0 in flight, on each of 2 streams"
    ]


DOCUMENTED = (
    "steps",
    "wall_s",
    "plan_hash",
    "workers",
    "samples",
    "updates",
    "metrics",
    "eval",
    "weights_digest",
)


def test_the_json_object_has_every_documented_key_and_only_numbers_json_knows() -> None:
    found = result_object(result(), plan_hash="ff", wall_s=1.23456, run_dir="/runs/x")
    for key in DOCUMENTED:
        assert key in found
    assert found["wall_s"] == 1.235
    assert found["eval"] == {"digit": 0.5, "exact_match": 1.0}
    assert found["metrics"]["solver"]["reward"] == pytest.approx({"first": 0.045, "last": 0.945})
    json.dumps(found, allow_nan=False)


def test_figures_of_one_name_in_several_evaluations_are_told_apart() -> None:
    both = {"trained": {"team": 0.5, "extra": math.inf}, "always-accept": {"team": 0.25}}
    found = result_object(replace(result(), evaluations=both), plan_hash="", wall_s=0.0, run_dir="")
    assert found["eval"] == {"trained/team": 0.5, "extra": None, "always-accept/team": 0.25}
    assert found["evaluations"]["always-accept"] == {"team": 0.25}


def test_headlines_are_what_people_look_at_first() -> None:
    assert headline({"lr": 1, "loss": 2, "reward": 3}) == "reward"
    assert headline({"grad_norm": 1, "lr": 2}) is None
    assert headline({"reward/solver": 1, "team": 2}) == "team"
    assert list(main_figures({"digit": 1, "exact_match": 2, "lr": 3})) == ["exact_match", "digit"]
    assert main_figures({"grad_norm": 1, "lr": 2}) == {"grad_norm": 1}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.6131, "0.613"), (12.41, "12.41"), (123.4, "123.4"), (6230.0, "6,230"), (1.2e-9, "1.2e-09")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.84, "0.8 s"), (48.2, "48 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 05 min")],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
