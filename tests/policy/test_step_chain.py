"""Who waits for whom: the closed form of a step's time."""

from graphlib import CycleError

import pytest

from flowgraph.runtime.policy.step_chain import Work, step_chain, turns_end


def test_works_that_need_all_records_add_up() -> None:
    chain = step_chain(
        [
            Work(name="play", group="host", seconds=2.0),
            Work(name="train", group="lm", seconds=3.0, reads=("play",)),
        ]
    )
    assert chain.seconds == 5.0
    assert chain.path == (("play", 2.0), ("train", 3.0))


def test_a_reader_of_shares_begins_when_the_first_is_there_and_ends_after_the_last() -> None:
    def seconds(play: float, train: float, share: float) -> float:
        return step_chain(
            [
                Work(name="play", group="host", seconds=play, share=0.0),
                Work(name="train", group="lm", seconds=train, share=share, reads=("play",)),
            ]
        ).seconds

    assert seconds(2.0, 8.0, 0.25) == 8.5  # a quarter of the play, then all of the training
    assert seconds(8.0, 2.0, 0.25) == 8.5  # all of the play, then a quarter of the training
    assert seconds(8.0, 2.0, 1.0) == 10.0
    assert seconds(8.0, 2.0, 0.001) == pytest.approx(8.0, rel=0.001)


def test_what_is_handed_on_late_is_read_late() -> None:
    chain = step_chain(
        [
            Work(name="train", group="lm", seconds=4.0, share=0.5),
            Work(name="backward", group="vit", seconds=2.0, share=0.1, reads=("train",)),
        ]
    )
    assert chain.seconds == 5.0  # half of the gradients come with the last of two micro-batches


def test_of_several_readers_the_last_one_sets_the_end() -> None:
    chain = step_chain(
        [
            Work(name="play", group="host", seconds=1.0),
            Work(name="short", group="a", seconds=1.0, reads=("play",)),
            Work(name="long", group="b", seconds=4.0, reads=("play",)),
            Work(name="join", group="c", seconds=1.0, reads=("short", "long")),
        ]
    )
    assert chain.seconds == 6.0
    assert [name for name, _ in chain.path] == ["play", "long", "join"]


def test_works_on_the_same_devices_follow_one_another() -> None:
    works = [
        Work(name="play", group="host", seconds=1.0),
        Work(name="first", group="a", seconds=3.0, reads=("play",)),
        Work(name="second", group="b", seconds=2.0, reads=("play",), behind=("first",)),
    ]
    chain = step_chain(works)
    assert chain.seconds == 6.0
    assert sum(seconds for _, seconds in chain.path) == chain.seconds
    assert chain.path[-1] == ("second", 2.0)


def test_works_in_a_circle_are_refused_and_none_take_no_time() -> None:
    with pytest.raises(CycleError):
        step_chain(
            [
                Work(name="a", group="a", seconds=1.0, reads=("b",)),
                Work(name="b", group="b", seconds=1.0, reads=("a",)),
            ]
        )
    assert step_chain([]).seconds == 0.0
    assert step_chain([Work(name="a", group="a", seconds=2.0, reads=("gone",))]).seconds == 2.0


def test_devices_used_in_turn_wait_for_whoever_is_not_ready() -> None:
    assert turns_end([]) == 0.0
    assert turns_end([(0.0, 2.0), (1.0, 3.0)]) == 5.0
    assert turns_end([(0.0, 2.0), (4.0, 3.0)]) == 7.0
