"""The timeline as a Chrome trace and as a picture, checked by readers of our own."""

import json
import xml.etree.ElementTree as ET
from functools import cache
from typing import Any

import pytest

from flowgraph.passes import compile_graph
from flowgraph.report.timeline import timeline_svg
from flowgraph.runtime.simulate import SimResult, simulate
from flowgraph.runtime.simulate.timeline import chrome_trace, covered, length_outside
from tests.passes.graphs import laptop, marl


@cache
def simulated() -> SimResult:
    return simulate(compile_graph(marl(batch=4, tries=2), laptop()), steps=2)


def check_trace(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Raises AssertionError where a reader of the Trace Event Format would stumble."""
    events: list[dict[str, Any]] = trace["traceEvents"]
    named = {(e["pid"], e.get("tid")) for e in events if e["ph"] == "M"}
    last: dict[tuple[int, int], float] = {}
    stamps = [event["ts"] for event in events if event["ph"] != "M"]
    assert stamps == sorted(stamps), "events must be sorted by time"
    for event in events:
        assert event["ph"] in ("M", "X", "i", "C"), event
        assert isinstance(event["name"], str)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
        if event["ph"] == "X":
            lane = (event["pid"], event["tid"])
            assert lane in named, f"{lane} has no name"
            assert event["dur"] >= 0
            # A worker does one thing at a time: spans of a thread neither overlap nor nest.
            assert event["ts"] >= last.get(lane, 0.0) - 0.01, event
            last[lane] = event["ts"] + event["dur"]
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
    return events


def test_the_trace_is_what_a_reader_expects() -> None:
    trace = json.loads(json.dumps(chrome_trace(simulated().timeline, "marl")))
    events = check_trace(trace)
    spans = [event for event in events if event["ph"] == "X"]
    assert {"host", "rollout", "train", "update", "load", "events"} <= {e["cat"] for e in spans}
    assert any(event["name"] == "StepFinished 1" for event in events if event["ph"] == "i")


def test_every_worker_has_a_lane_named_after_it() -> None:
    events = chrome_trace(simulated().timeline, "marl")["traceEvents"]
    lanes = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes == {
        "orchestrator",
        "host-0",
        "solver.engine-0",
        "verifier.engine-0",
        "solver.gang-0",
        "verifier.gang-0",
    }


def test_the_picture_is_one_element_that_needs_nothing_else() -> None:
    picture = timeline_svg(simulated().timeline)
    root = ET.fromstring(picture)
    assert root.tag == "svg"
    assert "http" not in picture
    texts = {element.text for element in root.iter("text")}
    assert {"host-0", "solver.engine-0", "train"} <= texts
    width = float(root.attrib["viewBox"].split()[2])
    for element in root.iter("rect"):
        right = float(element.attrib["x"]) + float(element.attrib["width"])
        assert 0 <= right <= width + 1, element.attrib


def test_a_part_of_the_time_can_be_shown() -> None:
    whole = timeline_svg(simulated().timeline)
    part = timeline_svg(simulated().timeline, start=0.0, end=simulated().seconds / 10)
    assert part.count("<rect") < whole.count("<rect")


def test_time_outside_others_is_what_they_leave() -> None:
    assert covered([(3, 4), (0, 1), (0.5, 2)]) == [(0, 2), (3, 4)]
    assert length_outside([(0, 10)], [(2, 3), (5, 7), (9, 20)]) == pytest.approx(6.0)
    assert length_outside([(0, 1), (2, 3)], []) == pytest.approx(2.0)
    assert length_outside([], [(0, 1)]) == 0.0
