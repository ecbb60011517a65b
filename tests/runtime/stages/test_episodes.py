"""Episodes: rows and randomness never depend on which answer comes first; failures are named."""

import asyncio
from typing import Any

import numpy as np
import pytest

from flowgraph.ir.graph import FunctionRef, Stage
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.stages.host import HostResult
from tests.runtime.stages.rig import (
    PLAYS,
    HoldingEngine,
    StuckEngine,
    after,
    agent,
    answer,
    drive,
    episodes,
    host,
    item,
    plan,
    run,
    source,
)

BOTH = ("solver", "verifier")


def games(function: str, agents: tuple[str, ...] = ("solver",), *more: Stage, **given: Any) -> Any:
    seed = given.pop("seed", 0)
    players = [agent(name) for name in agents]
    stage = episodes(function, agents, **given)
    return host(plan(source(), stage, *more, agents=players), seed=seed)


def rows(result: HostResult, name: str = "solver") -> list[dict[str, Any]]:
    return [row for batch in result.outputs[f"games.{name}"] for row in batch.to_rows()]


def same_outputs(a: HostResult, b: HostResult) -> bool:
    return a.metrics == b.metrics and all(
        len(a.outputs[s]) == len(b.outputs[s])
        and all(x.equals(y) for x, y in zip(a.outputs[s], b.outputs[s], strict=True))
        for s in a.outputs
    )


def failed(task: Any, *units: tuple[int, ...]) -> StageFailed:
    with pytest.raises(StageFailed) as caught:
        run(task, *units)
    return caught.value


def test_every_call_becomes_a_row_of_exactly_the_tokens_sampled() -> None:
    engine = HoldingEngine(0)
    result = run(games("once"), (4, 6), engine=engine)
    found = rows(result)
    assert [(r["sample"], r["trajectory"], r["call"]) for r in found] == [
        (4, 0, 0),
        (4, 1, 0),
        (6, 0, 0),
        (6, 1, 0),
    ]
    by_prompt_and_tokens = {
        (tuple(call.prompt), tuple(answer(call).tokens)) for _, call in engine.calls
    }
    for row in found:
        sampled = row["loss_mask"] == 1
        tokens = row["tokens"]
        assert (tuple(tokens[~sampled]), tuple(tokens[sampled])) in by_prompt_and_tokens
        assert not sampled[0]
        assert row["versions"].tolist() == [-1, *[5] * (tokens.size - 1)]
        assert row["logprobs"].tolist() == [0, *[-1.0, -2.0][: tokens.size - 1]]
        assert row["reward"] == tokens.size - 1


@pytest.mark.parametrize("function", ["once", "dialogue", "branches", "fastest", "half_heard"])
def test_results_do_not_depend_on_the_order_of_answers(function: str) -> None:
    agents = BOTH if function == "dialogue" else ("solver",)
    reference = run(games(function, agents), (0, 1), (2,), order=0)
    assert rows(reference)
    for order in range(1, 12):
        assert same_outputs(run(games(function, agents), (0, 1), (2,), order=order), reference)


@pytest.mark.parametrize("cut", [[(0,), (1,), (2,)], [(2,), (0, 1)], [(1, 2), (0,)]])
def test_results_do_not_depend_on_how_samples_are_dealt_to_items(cut: list[Any]) -> None:
    whole = run(games("dialogue", BOTH), (0, 1, 2))
    parts = drive(games("dialogue", BOTH), *(item(samples) for samples in cut), order=3)
    dealt = {s: part for part, samples in zip(parts, cut, strict=True) for s in samples}
    for name in BOTH:
        found = [r for s in (0, 1, 2) for r in rows(dealt[s], name) if r["sample"] == s]
        for ours, theirs in zip(found, rows(whole, name), strict=True):
            assert all(np.array_equal(ours[key], theirs[key]) for key in ours)


def test_calls_are_numbered_an_agent_in_the_order_they_are_made() -> None:
    result = run(games("dialogue", BOTH, trajectories=1, params={"turns": 3}), (5,))
    for name in BOTH:
        assert [row["call"] for row in rows(result, name)] == [0, 1, 2]
    lengths = [row["tokens"].size for row in rows(result, "solver")]
    assert lengths == sorted(lengths)
    assert [row["reward"] for row in rows(result, "solver")] == [0.5, 1.5, 2.5]
    assert [row["reward"] for row in rows(result, "verifier")] == [1, 1, 1]


def test_keys_differ_in_seed_variant_sample_trajectory_and_ordinal() -> None:
    evaluate = Stage(name="e", op="evaluate", attributes={"of": "games", "source": {}})
    seen: list[bytes] = []
    for seed, variant in ((0, 0), (0, 1), (1, 0)):
        engine = HoldingEngine(0)
        run(
            games("branches", ("solver",), evaluate, seed=seed),
            (3, 11),  # the same task twice: only the ids differ
            variant=variant,
            engine=engine,
        )
        seen += [call.key for _, call in engine.calls]
    # An evaluation plays one trajectory.
    assert len(seen) == (2 + 1 + 2) * 2 * 7
    assert len(set(seen)) == len(seen)


def test_an_evaluation_replaces_parameters_of_its_own_episodes_only() -> None:
    evaluates = [
        Stage(
            name=name,
            op="evaluate",
            attributes={"of": of, "source": {}, "overrides": {"turns": 1}},
        )
        for name, of in (("e", "games"), ("f", "train"))
    ]
    task = games("dialogue", BOTH, *evaluates, trajectories=1)
    counts = [len(rows(run(task, (0,), variant=variant))) for variant in (0, 1, 2)]
    assert counts == [2, 1, 2]


def test_rewards_and_figures_are_summed_over_trajectories() -> None:
    result = run(games("dialogue", BOTH, trajectories=3), (0, 1))
    assert result.metrics == {
        "reward/solver": (6.0, 6),
        "reward/verifier": (6.0, 6),
        "turns": (12.0, 6),
    }


def test_only_the_tables_that_somebody_reads_are_made() -> None:
    stage = episodes("dialogue", BOTH)
    stage = Stage(
        name="games",
        op="episodes",
        inputs=("tasks",),
        outputs=("games.verifier",),
        attributes=stage.attributes,
        function=stage.function,
        agents=BOTH,
    )
    task = host(plan(source(), stage, agents=[agent("solver"), agent("verifier")]))
    result = run(task, (0,))
    assert set(result.outputs) == {"tasks", "games.verifier"}
    assert len(rows(result, "verifier")) == 4


def test_no_more_samples_are_played_at_once_than_in_flight() -> None:
    engine = HoldingEngine(0)
    most = 0

    def watch(port: Any) -> None:
        nonlocal most
        most = max(most, port.waiting)

    run(games("once", in_flight=2), (0, 1, 2), (3, 4, 5), engine=engine, meanwhile=watch)
    assert most == 4
    assert len(engine.calls) == 12


def test_the_first_failing_sample_in_order_is_named_with_the_users_line() -> None:
    error = failed(games("odd_fails"), (0, 3, 1))
    assert (error.stage, error.sample) in (("games", 3), ("games", 1))
    assert error.cause == "KeyError: 'no such thing'"
    assert str(error.at).startswith("tests/runtime/stages/plays.py:")
    assert 'raise KeyError("no such thing")' in error.trace
    assert "episodes.py" not in error.trace


def test_a_failure_gives_up_all_other_calls() -> None:
    ports: list[Any] = []
    with pytest.raises(StageFailed):
        run(games("odd_fails", trajectories=8), (0, 1, 2), meanwhile=ports.append)
    assert ports[-1].drain() == []


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nothing", "'returns' returned NoneType instead of fg.Rewards"),
        ("stranger", "rewards for 'nobody', which is not among solver"),
        ("no reward", "no reward for 'solver', which was called 1 times"),
        ("too many", "2 rewards for 'solver', which was called 1 times"),
        ("a name", "returned float() argument must be"),
        ("not finite", "the reward of 'solver' is not finite: nan"),
    ],
)
def test_what_is_no_reward_is_refused_at_the_function(what: str, message: str) -> None:
    error = failed(games("returns", params={"what": what}), (6,))
    assert (error.stage, error.sample) == ("games", 6)
    assert message in error.cause
    assert str(error.at).startswith("tests/runtime/stages/plays.py:")


def test_rewards_may_be_an_array() -> None:
    result = run(games("returns", params={"what": "array"}), (6,))
    assert result.metrics == {"reward/solver": (5.0, 2)}


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ((), "a prompt is a list of token ids, got []"),
        ((1.5,), "a prompt is a list of token ids, got [1.5]"),
        (tuple(range(62)), "a prompt of 62 tokens and max_tokens 3 do not fit max_length 64"),
    ],
)
def test_a_prompt_that_cannot_be_asked_fails_at_the_users_line(prompt: Any, message: str) -> None:
    error = failed(games("asks", params={"prompt": prompt}), (0,))
    assert message in error.cause
    assert "await solver.generate(list(prompt))" in error.trace


def test_a_late_trajectory_fails_the_run_by_default() -> None:
    error = failed(games("sleeper", timeout_s=0.05, params={"seconds": 60.0}), (1,))
    assert str(error).startswith(
        "stage 'games', sample 1: trajectory 0 took longer than 0.05 s (timeout_s)"
    )
    assert 'on_timeout="drop"' in str(error)


def test_a_late_trajectory_may_drop_its_whole_sample() -> None:
    task = games("sleeper", timeout_s=0.05, on_timeout="drop", params={"seconds": 60.0})
    result = run(task, (0, 1), (2, 3))
    assert [row["sample"] for row in rows(result)] == [0, 0, 2, 2]
    assert [sample for sample, _ in result.dropped] == [1, 3]
    assert "took longer than 0.05 s" in result.dropped[0][1]


def test_a_timeout_error_of_the_users_is_no_timeout_of_ours() -> None:
    task = games("timed_out_itself", on_timeout="drop")
    assert failed(task, (0,)).cause == "TimeoutError: the user's own"


def test_a_function_may_sleep() -> None:
    assert len(rows(run(games("sleeper"), (0, 1)))) == 4


def test_an_answer_that_was_never_handed_over_makes_no_row() -> None:
    engine = StuckEngine(0)
    assert rows(run(games("impatient", trajectories=1), (0,), engine=engine)) == []
    assert len(engine.calls) == 2


def test_calls_left_open_by_a_function_that_returned_are_given_up() -> None:
    engine = HoldingEngine(0)
    found = rows(run(games("half_heard", trajectories=1), (0,), engine=engine))
    assert [row["tokens"][0] for row in found] == [2, 1]
    assert [call.prompt.tolist() for _, call in engine.calls] == [[2], [1]]


def test_text_goes_through_the_agents_tokenizer() -> None:
    tokenizer = FunctionRef(
        module="flowgraph.tokenizers", qualname="CharTokenizer", params={"alphabet": "ab"}
    )
    task = host(plan(source(), episodes("talker"), agents=[agent(tokenizer=tokenizer)]))
    found = rows(run(task, (0,)))
    assert [row["reward"] for row in found] == [1.0, 1.0]
    assert [row["tokens"][:2].tolist() for row in found] == [[3, 4], [3, 4]]
    without = host(plan(source(), episodes("talker"), agents=[agent()]))
    assert "text as a prompt needs a tokenizer" in failed(without, (0,)).cause


def learning(function: str, *needs: str, **params: Any) -> Any:
    """The games of an agent that a train stage behind a map learns from; only they are run."""
    stages = [source(), episodes(function, params=params)]
    stages.append(after(stages[-1], "map", "doubled", name="mapped"))
    train = Stage(name="train", op="train", inputs=("mapped",), attributes={"needs": needs})
    evaluate = Stage(name="e", op="evaluate", attributes={"of": "games", "source": {}})
    return host(plan(*stages, train, evaluate, agents=[agent()]), only=("tasks", "games"))


@pytest.mark.parametrize("needs", ["advantage", "behaviour_logprobs"])
def test_a_call_that_is_trained_on_is_drawn_from_what_the_trainer_scores(needs: str) -> None:
    error = failed(learning("asks_otherwise", needs, allowed=[3, 4]), (0,))
    assert "agent 'solver': `allowed` restricts a call that the agent is trained on" in error.cause
    assert str(error.at).startswith("tests/runtime/stages/plays.py:")
    assert error.sample == 0
    error = failed(learning("asks_otherwise", needs, temperature=0.5), (0,))
    assert "temperature 0.5 for a call that the agent is trained on" in error.cause
    assert "scores tokens at 1" in error.cause
    assert len(rows(run(learning("asks_otherwise", needs, temperature=1.0), (0,)))) == 2


@pytest.mark.parametrize("given", [{"allowed": [3, 4]}, {"temperature": 0.5}])
def test_a_call_that_no_policy_gradient_is_made_of_is_free(given: dict[str, Any]) -> None:
    engine = HoldingEngine(0)
    run(learning("asks_otherwise", "reward", **given), (0,), engine=engine)  # imitation, say
    run(learning("asks_otherwise", "advantage", **given), (0,), variant=1, engine=engine)
    for _, call in engine.calls:
        for name, value in given.items():
            assert getattr(call.sampling, name) == (tuple(value) if name == "allowed" else value)


def test_messages_become_tokens_by_the_agents_tokenizer() -> None:
    tokenizer = FunctionRef(module=PLAYS, qualname="Chat", params={})
    task = host(plan(source(), episodes("chats"), agents=[agent(tokenizer=tokenizer)]))
    assert [row["tokens"][:3].tolist() for row in rows(run(task, (5,)))] == [[1, 5, 2]] * 2


def test_an_engine_that_fails_ends_every_episode() -> None:
    def fail(port: Any) -> None:
        port.fail(RuntimeError("the engine is gone"))

    with pytest.raises(StageFailed, match="RuntimeError: the engine is gone"):
        run(games("once"), (0,), meanwhile=fail)


def test_agents_whose_names_are_no_identifiers_are_handed_over_all_the_same() -> None:
    stage = episodes("once", ("my-solver",))
    task = host(plan(source(), stage, agents=[agent("my-solver")]))
    with pytest.raises(StageFailed, match="rewards for 'solver', which is not among my-solver"):
        run(task, (0,))


def test_async_functions_share_nothing_between_items() -> None:
    task = games("dialogue", BOTH)
    first, second = drive(task, item((0,)), item((0,)), order=5)
    assert same_outputs(first, second)
    assert asyncio.iscoroutinefunction(task.run)
