"""Light values differ from frozen ones in nothing but what making them costs."""

from dataclasses import dataclass, field, fields, replace

import pytest

from flowgraph.runtime.light import light


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    number: int
    words: tuple[str, ...]
    more: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    number: int
    words: tuple[str, ...]
    more: int = 3


def test_it_is_made_compared_hashed_shown_and_changed_as_a_frozen_one() -> None:
    made, frozen = Light(number=1, words=("a",)), Frozen(number=1, words=("a",))
    assert [f.name for f in fields(made)] == [f.name for f in fields(frozen)]
    assert repr(made).replace("Light", "Frozen") == repr(frozen)
    assert made == Light(number=1, words=("a",), more=3)
    assert hash(made) == hash(frozen)
    assert replace(made, number=2) == Light(number=2, words=("a",))
    assert made != replace(made, more=4)
    assert not hasattr(made, "__dict__")


def test_a_missing_or_unknown_field_and_one_by_position_are_refused() -> None:
    for given in ({"number": 1}, {"number": 1, "words": (), "other": 2}):
        with pytest.raises(TypeError, match="__init__"):
            Light(**given)
    with pytest.raises(TypeError):
        Light(1, ())  # type: ignore[call-arg]  # that is what is tested


def test_what_it_would_get_wrong_is_refused() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Listed:
        names: list[str] = field(default_factory=list)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Checked:
        number: int

        def __post_init__(self) -> None:
            assert self.number

    for cls in (Listed, Checked):
        with pytest.raises(TypeError, match=cls.__name__):
            light(cls)
