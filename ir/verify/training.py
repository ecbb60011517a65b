"""Rules of what is trained and evaluated."""

from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index, agent_of, attribute
from flowgraph.ir.verify.faults import Faults, GraphRule, StageRule, fault, nearest, told
from flowgraph.ir.verify.records import missing_field, read_type

OPTIMIZERS = ("adamw", "adam", "sgd")
MADE_BY_TRAINERS = {"behaviour_logprobs": "logprobs", "reference_logprobs": ""}
"""Fields that a loss may need and no stream has, with the field each is made from."""


def tokens_are_there(at: Index, stage: Stage) -> Faults:
    """What is packed or trained has `tokens`, whole numbers, ragged in one dim."""
    record = read_type(at, stage)
    yield from missing_field(stage, record, "tokens", "field")
    tokens = record.field("tokens")
    if tokens is None:
        return
    if tokens.dtype not in ("int32", "int64") or len(tokens.dims) != 1 or not tokens.ragged:
        hint = f"'tokens: int64[tokens*]' in the type of {stage.inputs[0]!r}"
        expects = "'tokens: int64[tokens*]'"
        yield fault(stage, expects, f"'{tokens}'", hint, term=stage.inputs[0])


def mask_is_as_long(at: Index, stage: Stage) -> Faults:
    """What is trained has a `loss_mask` as long as its `tokens`."""
    record = read_type(at, stage)
    tokens, mask = record.field("tokens"), record.field("loss_mask")
    yield from missing_field(stage, record, "loss_mask", "field")
    if tokens is not None and mask is not None and mask.dims != tokens.dims:
        hint = f"'loss_mask: {mask.dtype}[{', '.join(map(str, tokens.dims))}]'"
        expects = f"'loss_mask' as long as '{tokens}'"
        yield fault(stage, expects, f"'{mask}'", hint, term=stage.inputs[0])


def loss_has_its_fields(at: Index, stage: Stage) -> Faults:
    """What the loss needs is in the stream, or made by trainers from what is."""
    record = read_type(at, stage)
    for need in attribute(stage, "needs"):
        source = MADE_BY_TRAINERS.get(need, need)
        if source:
            yield from missing_field(stage, record, source, "field")


def reference_is_given(at: Index, stage: Stage) -> Faults:
    """A loss that reads a reference's log-probs has a reference."""
    for need in attribute(stage, "needs"):
        if not MADE_BY_TRAINERS.get(need, need) and not attribute(stage, "reference"):
            yield fault(
                stage,
                f"a reference module, for {need!r}",
                "none",
                "reference=<a module with trainable=False>",
                term=need,
            )


def reference_is_declared(at: Index, stage: Stage) -> Faults:
    """The reference is a declared module."""
    name = attribute(stage, "reference")
    if name and name not in at.modules:
        hint = nearest(name, at.modules)
        yield fault(stage, "a declared module as reference", repr(name), hint, term=name)


def reference_stays(at: Index, stage: Stage) -> Faults:
    """The reference is a module that nothing trains."""
    name = attribute(stage, "reference")
    if name in at.modules and at.modules[name].trainable is not False:
        yield fault(
            stage,
            f"reference {name!r} to stay as it is",
            "a trainable module",
            f"trainable=False where {name!r} is declared",
            term=name,
        )


def counts_are_positive(at: Index, stage: Stage) -> Faults:
    """`batch`, `micro_batch` and `updates` are positive."""
    for name in ("batch", "micro_batch", "updates"):
        if attribute(stage, name) < 1:
            got = str(attribute(stage, name))
            yield fault(stage, f"{name} >= 1", got, f"{name}=1", term=name)


def bounds_are_not_negative(at: Index, stage: Stage) -> Faults:
    """`clip` and `staleness` are not negative."""
    for name in ("clip", "staleness"):
        if attribute(stage, name) < 0:
            got = str(attribute(stage, name))
            yield fault(stage, f"{name} >= 0", got, f"{name}=0", term=name)


def batch_divides(at: Index, stage: Stage) -> Faults:
    """Each update of a step gets the same number of samples."""
    batch, updates = attribute(stage, "batch"), attribute(stage, "updates")
    if updates >= 1 and batch >= 1 and batch % updates:
        near = batch - batch % updates or updates
        yield fault(
            stage,
            f"a batch that its {updates} updates divide",
            f"{batch} = {batch // updates} x {updates} + {batch % updates}",
            f"batch={near}",
            term="batch",
        )


def optimizer_is_known(at: Index, stage: Stage) -> Faults:
    """The optimizer is a known one."""
    name = attribute(stage, "optimizer").get("name")
    if name not in OPTIMIZERS:
        yield fault(
            stage,
            f"an optimizer of {', '.join(OPTIMIZERS)}",
            repr(name),
            nearest(str(name), OPTIMIZERS),
            term="optimizer",
        )


def learning_rate_is_given(at: Index, stage: Stage) -> Faults:
    """The optimizer has a learning rate above 0."""
    rate = attribute(stage, "optimizer").get("lr")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0:
        yield fault(stage, "a learning rate lr > 0", repr(rate), "lr=1e-3", term="optimizer")


def something_is_trained(at: Index, stage: Stage) -> Faults:
    """A train stage has modules, and trains one of them."""
    if not stage.modules:
        names = ", ".join(module.name for module in at.graph.modules) or "<a module>"
        yield fault(stage, "a module to train", "none", f"modules=({names})", term="modules")
    elif all(at.modules[name].trainable is False for name in stage.modules):
        names = ", ".join(map(repr, stage.modules))
        hint = f"trainable=True where {stage.modules[0]!r} is declared"
        yield fault(stage, "a trainable module", f"{names}, none of which is", hint, term="modules")


def modules_are_listed_once(at: Index, stage: Stage) -> Faults:
    """A train stage lists a module once."""
    if len(set(stage.modules)) != len(stage.modules):
        hint = f"modules=({', '.join(dict.fromkeys(stage.modules))})"
        yield fault(stage, "each module once", ", ".join(stage.modules), hint, term="modules")


def sampled_tokens_have_a_chance(at: Index, stage: Stage) -> Faults:
    """At temperature 0 the likeliest token has probability 1, and nothing can be learned."""
    stream = stage.inputs[0]
    while (made := at.producer(stream)) and made.op != "episodes" and made.inputs:
        stream = made.inputs[0]
    agent = at.agents.get(agent_of(made, stream)) if made and made.op == "episodes" else None
    if agent and not agent.sampling.get("temperature", 1.0) > 0:
        yield fault(
            stage,
            f"agent {agent.name!r} to sample at a temperature above 0, to learn from it",
            f"{agent.sampling['temperature']} ({agent.at})",
            "a temperature above 0 where the agent is declared",
            term="temperature",
        )


def pack_feeds_trainers(at: Index, stage: Stage) -> Faults:
    """Packed rows exist in trainers only."""
    for reader in at.children(stage):
        if reader.op != "train":
            yield fault(
                stage,
                "to be read by train stages only",
                f"{reader.name!r}, a {reader.op}",
                f"pack behind {reader.name!r}",
                term=stage.outputs[0],
            )


def packs_hold_tokens(at: Index, stage: Stage) -> Faults:
    """A packed row holds at least a token."""
    if attribute(stage, "tokens") < 1:
        got, hint = str(attribute(stage, "tokens")), "tokens=1, or a length that samples fit in"
        yield fault(stage, "tokens >= 1", got, hint, term="tokens")


def evaluated_stage_exists(at: Index, stage: Stage) -> Faults:
    """`of` names a train or an episodes stage."""
    name = attribute(stage, "of")
    candidates = [s.name for s in at.graph.stages if s.op in ("train", "episodes")]
    if name not in candidates:
        hint = nearest(name, candidates)
        yield fault(stage, "a train or episodes stage as `of`", repr(name), hint, term=name)


def evaluation_has_a_metric(at: Index, stage: Stage) -> Faults:
    """The evaluation of a train stage has a metric."""
    of = at.stages.get(attribute(stage, "of"))
    if of is not None and of.op == "train" and stage.function is None:
        yield fault(stage, "a metric, since it evaluates a train stage", "none", "function=...")


def evaluations_are_counted(at: Index, stage: Stage) -> Faults:
    """An evaluation takes a sample or more, every so many steps."""
    for name, least in (("samples", 1), ("every", 0)):
        if attribute(stage, name) < least:
            got = str(attribute(stage, name))
            yield fault(stage, f"{name} >= {least}", got, f"{name}={least}", term=name)


def steps_agree(at: Index) -> Faults:
    """A step has one membership and one number of updates, whatever it trains."""
    trains = at.graph.by_op("train")
    for stage in trains[1:]:
        for name in ("batch", "updates"):
            mine, first = attribute(stage, name), attribute(trains[0], name)
            if mine != first:
                yield fault(
                    stage,
                    f"{name}={first}, as {trains[0].name!r} has: a step has one",
                    f"{name}={mine}",
                    "give both the same",
                    term=name,
                )


def one_trainer_a_module(at: Index) -> Faults:
    """A module's version moves on by one update of one stage."""
    trainers: dict[str, Stage] = {}
    for stage in at.graph.by_op("train"):
        for name in stage.modules:
            if at.modules[name].trainable is False:
                continue
            other = trainers.setdefault(name, stage)
            if other is not stage:
                yield told(
                    stage,
                    f"trains module {name!r}, which {other.name!r} ({other.at}) trains already",
                    "join their streams, or give one of them a module of its own",
                    term=name,
                )


TRAINING_RULES: dict[str, tuple[StageRule, ...]] = {
    "pack": (tokens_are_there, pack_feeds_trainers, packs_hold_tokens),
    "train": (
        counts_are_positive,
        bounds_are_not_negative,
        batch_divides,
        optimizer_is_known,
        learning_rate_is_given,
        something_is_trained,
        modules_are_listed_once,
        tokens_are_there,
        mask_is_as_long,
        loss_has_its_fields,
        reference_is_given,
        reference_is_declared,
        reference_stays,
        sampled_tokens_have_a_chance,
    ),
    "evaluate": (evaluated_stage_exists, evaluation_has_a_metric, evaluations_are_counted),
}


STEP_RULES: tuple[GraphRule, ...] = (steps_agree, one_trainer_a_module)
"""Rules of the whole graph that rest on all stages being legal."""
