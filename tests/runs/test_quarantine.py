"""A poisoned sample is tried again, then put aside, and the run is one that knew it all along."""

import json
from pathlib import Path

import pytest

from flowgraph.runtime.journal_reader import read_story
from flowgraph.runtime.progress import Progress, PutAside
from flowgraph.runtime.shell import RunAborted
from tests.runs.command import flowgraph
from tests.runs.reference_process import reference
from tests.runs.running import GRAPHS, plan_of, run

POISONED = GRAPHS / "poisoned.py"
GAMES = GRAPHS / "poisoned_games.py"


class Watching:
    """Remembers what was put aside."""

    def __init__(self) -> None:
        self.aside: list[PutAside] = []

    def __call__(self, progress: Progress) -> None:
        if isinstance(progress, PutAside):
            self.aside.append(progress)


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    ["filter", *(pytest.param(w, marks=pytest.mark.soak) for w in ("source", "map"))],
)
def test_poisoned_samples_are_put_aside_and_the_weights_are_those_of_a_run_that_knew(
    where: str, tmp_path: Path
) -> None:
    plan = plan_of(POISONED, {"where": where, "bad": "10,17"}, {"host.replicas": 2})
    watching = Watching()
    result = run(
        plan, tmp_path / "run", exact=True, quarantine=2, checkpoint_every=1, observe=watching
    )
    assert {aside.sample for aside in watching.aside} == {10, 17}
    assert [aside.count for aside in watching.aside] == [1, 2]
    assert result.quarantined == 2
    knew = reference(plan, tmp_path / "reference", steps=4, exact=True, quarantined=(10, 17))
    assert dict(result.weights_digest) == knew["trained"]
    trained = next(v for name, v in result.samples.items() if name.endswith("/train-lm"))
    assert trained == {"admitted": 32, "consumed": 32, "dropped": 0, "in_flight": 0}
    story = read_story(tmp_path / "run")
    assert [(q.sample, q.cause) for q in story.quarantined] == [
        (10, "ValueError: poison: 10"),
        (17, "ValueError: poison: 17"),
    ]
    assert "harm" in story.quarantined[0].traceback
    assert "poisoned.py" in story.quarantined[0].place


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [pytest.param("false", marks=pytest.mark.soak), "true"])
def test_of_a_source_that_is_read_again_the_record_is_put_aside_and_not_only_the_position(
    shuffle: str, tmp_path: Path
) -> None:
    settings = {"where": "map", "bad": "5", "length": "12", "shuffle": shuffle}
    plan = plan_of(POISONED, settings)
    watching = Watching()
    result = run(plan, tmp_path / "run", exact=True, quarantine=1, observe=watching)
    (aside,) = watching.aside
    knew = reference(plan, tmp_path / "reference", steps=4, exact=True, quarantined=(aside.sample,))
    assert dict(result.weights_digest) == knew["trained"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at_end", "consumed"), [pytest.param("drop", 16, marks=pytest.mark.soak), ("short", 18)]
)
def test_at_the_sources_end_what_was_put_aside_makes_the_last_batch_shorter(
    at_end: str, consumed: int, tmp_path: Path
) -> None:
    plan = plan_of(POISONED, {"bad": "10,17", "length": "20", "at_end": at_end, "steps": "9"})
    result = run(plan, tmp_path / "run", quarantine=5)
    trained = next(v for name, v in result.samples.items() if name.endswith("/train-lm"))
    assert trained["consumed"] == consumed


@pytest.mark.slow
def test_what_fails_once_is_tried_again_and_nothing_is_put_aside(tmp_path: Path) -> None:
    settings = {"bad": "10,17", "mended": str(tmp_path / "mended")}
    result = run(plan_of(POISONED, settings), tmp_path / "run", exact=True, retries=1)
    assert result.quarantined == 0
    assert sorted(file.suffix for file in tmp_path.glob("mended.*")) == [".10", ".17"]
    whole = reference(plan_of(POISONED), tmp_path / "reference", steps=4, exact=True)
    assert dict(result.weights_digest) == whole["trained"]
    assert "ValueError: poison: 10" in (tmp_path / "run" / "logs" / "host-0.log").read_text()


@pytest.mark.slow
def test_one_more_than_may_be_put_aside_ends_the_run_and_a_resume_still_knows_the_first(
    tmp_path: Path,
) -> None:
    plan = plan_of(POISONED, {"bad": "10,17"})
    folder = tmp_path / "run"
    with pytest.raises(RunAborted) as caught:
        run(plan, folder, exact=True, quarantine=1, checkpoint_every=1)
    assert (caught.value.stage, caught.value.sample) in {("check", 10), ("check", 17)}
    assert "1 samples were put aside already (--quarantine 1)" in str(caught.value.__notes__)
    (first,) = read_story(folder).quarantined
    options = json.loads((folder / "options.json").read_text())
    (folder / "options.json").write_text(json.dumps({**options, "quarantine": 2}))
    resumed = flowgraph("resume", str(folder))
    assert resumed["quarantined"] == 2
    assert {q.sample for q in read_story(folder).quarantined} == {10, 17}
    assert first.sample in (10, 17)
    knew = reference(plan, tmp_path / "reference", steps=4, exact=True, quarantined=(10, 17))
    assert resumed["weights_digest"] == knew["trained"]


@pytest.mark.slow
def test_the_reference_executor_puts_the_same_samples_aside(tmp_path: Path) -> None:
    plan = plan_of(POISONED, {"bad": "10,17"})
    found = reference(plan, tmp_path / "found", steps=4, exact=True, quarantine=2)
    knew = reference(plan, tmp_path / "knew", steps=4, exact=True, quarantined=(10, 17))
    assert found["trained"] == knew["trained"]
    assert {q.sample for q in read_story(tmp_path / "found").quarantined} == {10, 17}


@pytest.mark.slow
def test_a_sample_whose_play_or_reward_raises_is_put_aside(tmp_path: Path) -> None:
    plan = plan_of(GAMES, {"bad": "8,13"}, {"player.engines": 2})
    result = run(plan, tmp_path / "run", exact=True, quarantine=2, checkpoint_every=1)
    assert result.quarantined == 2
    knew = reference(plan, tmp_path / "reference", steps=3, exact=True, quarantined=(5, 10))
    assert dict(result.weights_digest) == knew["trained"]
    (first, second) = read_story(tmp_path / "run").quarantined
    assert (first.sample, second.sample) == (5, 10)
    assert first.cause == "ConnectionError: the judge does not answer about 8"


@pytest.mark.slow
def test_a_failing_evaluation_ends_the_run_however_many_may_be_put_aside(tmp_path: Path) -> None:
    plan = plan_of(GAMES, {"evaluated": "4"})
    with pytest.raises(RunAborted, match="sample 1: ConnectionError") as caught:
        run(plan, tmp_path / "run", quarantine=100)
    assert not caught.value.training
    assert read_story(tmp_path / "run").quarantined == ()
