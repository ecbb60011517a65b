"""A sample that ends the process that has it: found, put aside, and the run is one that knew it."""

import re
import signal
from pathlib import Path

import pytest

from flowgraph.runtime.journal_reader import read_story
from flowgraph.runtime.progress import Progress, PutAside, Restarted
from flowgraph.runtime.shell import RunAborted
from tests.runs.reference_process import reference
from tests.runs.running import GRAPHS, plan_of, run

pytestmark = pytest.mark.slow

POISONED = GRAPHS / "poisoned.py"
soak = pytest.mark.soak


class Watching:
    """Remembers who was replaced and what was put aside."""

    def __init__(self) -> None:
        self.aside: list[PutAside] = []
        self.restarts: list[Restarted] = []

    def __call__(self, progress: Progress) -> None:
        match progress:
            case PutAside():
                self.aside.append(progress)
            case Restarted():
                self.restarts.append(progress)


@pytest.mark.parametrize(
    ("where", "how", "bad", "told"),
    [
        ("map", "crashes", "10,17", "was killed by signal 11 (SIGSEGV)"),
        ("filter", "killed", "10", "was killed by signal 9 (SIGKILL)"),
        pytest.param("filter", "crashes", "10,17", "was killed by signal 11 (SIGSEGV)", marks=soak),
        pytest.param("source", "exits", "10,17", "exited with status 7", marks=soak),
        pytest.param("map", "killed", "10,17", "was killed by signal 9 (SIGKILL)", marks=soak),
    ],
)
def test_samples_that_end_their_process_are_put_aside_and_the_weights_are_those_of_a_run_that_knew(
    where: str, how: str, bad: str, told: str, tmp_path: Path
) -> None:
    plan = plan_of(POISONED, {"where": where, "how": how, "bad": bad}, {"host.replicas": 2})
    culprits = [int(sample) for sample in bad.split(",")]
    seen = Watching()
    result = run(
        plan,
        tmp_path / "run",
        exact=True,
        quarantine=2,
        restarts=4,
        retries=1,
        checkpoint_every=1,
        observe=seen,
    )
    assert sorted(aside.sample for aside in seen.aside) == culprits
    assert result.quarantined == len(culprits)
    knew = reference(plan, tmp_path / "reference", steps=4, exact=True, quarantined=culprits)
    assert dict(result.weights_digest) == knew["trained"]
    trained = next(v for name, v in result.samples.items() if name.endswith("/train-lm"))
    assert trained == {"admitted": 32, "consumed": 32, "dropped": 0, "in_flight": 0}
    for known in read_story(tmp_path / "run").quarantined:
        assert known.cause == f"its process {told}, each of 2 times that it was handed out alone"
        if how == "crashes":
            assert known.traceback.startswith("Fatal Python error: Segmentation fault")
            assert re.search(r"poisoned\.py:\d+$", known.place)


def test_a_sample_that_hangs_its_process_is_found_by_the_silence_and_put_aside(
    tmp_path: Path,
) -> None:
    plan = plan_of(POISONED, {"how": "hangs", "bad": "10", "steps": "2"})
    seen = Watching()
    run(plan, tmp_path / "run", quarantine=1, restarts=4, retries=1, silence_s=1.5, observe=seen)
    (aside,) = seen.aside
    assert aside.sample == 10
    assert re.search(r"its process said nothing for \d s and was killed", aside.cause)


def test_without_a_quarantine_the_run_ends_naming_the_sample_and_how_its_process_ended(
    tmp_path: Path,
) -> None:
    plan = plan_of(POISONED, {"how": "crashes", "bad": "10"}, {"schedule.unit": 4})
    with pytest.raises(RunAborted) as caught:
        run(plan, tmp_path / "run", restarts=3)
    error = caught.value
    name = signal.Signals.SIGSEGV.name
    assert f"({name}) while it held sample 10 and nothing else" in error.what
    assert error.sample == 10
    assert error.at is not None
    assert error.at.file.endswith("poisoned.py")
