"""Rules of what is trained and evaluated."""

from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index, agent_of, attribute
from flowgraph.ir.verify.faults import Faults, GraphRule, StageRule, fault, nearest, told
from flowgraph.ir.verify.records import missing_field, read_type

OPTIMIZERS = ("adamw", "adam", "sgd")
MADE_BY_TRAINERS = {"behaviour_logprobs": "logprobs", "reference_logprobs": ""}
"""Fields that a loss may need and no stream has, with the field each is made from."""


def tokens_are_there(at: Index, stage: Stage) -> Faults:
    """`tokens` is int64 and ragged in one dim; what is trained has a `loss_mask` as long."""
    record = read_type(at, stage)
    yield from missing_field(stage, record, "tokens", "field")
    tokens = record.field("tokens")
    if tokens is None:
        return
    if tokens.dtype not in ("int32", "int64") or len(tokens.dims) != 1 or not tokens.ragged:
        yield fault(stage, "'tokens: int64[tokens*]'", f"'{tokens}'")
    if stage.op != "train":
        return
    yield from missing_field(stage, record, "loss_mask", "field")
    mask = record.field("loss_mask")
    if mask is not None and mask.dims != tokens.dims:
        yield fault(stage, f"'loss_mask' as long as '{tokens}'", f"'{mask}'")


def loss_has_its_fields(at: Index, stage: Stage) -> Faults:
    """What the loss needs is in the stream, or made by trainers from what is."""
    record = read_type(at, stage)
    reference = attribute(stage, "reference")
    for need in attribute(stage, "needs"):
        source = MADE_BY_TRAINERS.get(need, need)
        if source:
            yield from missing_field(stage, record, source, "field")
        elif not reference:
            yield fault(
                stage,
                f"a reference module, for {need!r}",
                "none",
                "reference=<a module with trainable=False>",
            )


def reference_stays(at: Index, stage: Stage) -> Faults:
    """The reference is a declared module that nothing trains."""
    name = attribute(stage, "reference")
    if not name:
        return
    if name not in at.modules:
        hint = nearest(name, at.modules)
        yield fault(stage, "a declared module as reference", repr(name), hint, term=name)
    elif at.modules[name].trainable is not False:
        yield fault(
            stage,
            f"reference {name!r} to stay as it is",
            "a trainable module",
            f"trainable=False where {name!r} is declared",
            term=name,
        )


def counts_are_positive(at: Index, stage: Stage) -> Faults:
    """`batch`, `micro_batch`, `updates` are positive; `clip`, `staleness` are not negative."""
    for name in ("batch", "micro_batch", "updates"):
        if attribute(stage, name) < 1:
            yield fault(stage, f"{name} >= 1", str(attribute(stage, name)), term=name)
    for name in ("clip", "staleness"):
        if attribute(stage, name) < 0:
            yield fault(stage, f"{name} >= 0", str(attribute(stage, name)), term=name)


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
    """The optimizer is a known one, with a learning rate above 0."""
    settings = attribute(stage, "optimizer")
    name, rate = settings.get("name"), settings.get("lr")
    if name not in OPTIMIZERS:
        yield fault(
            stage,
            f"an optimizer of {', '.join(OPTIMIZERS)}",
            repr(name),
            nearest(str(name), OPTIMIZERS),
            term="optimizer",
        )
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0:
        yield fault(stage, "a learning rate lr > 0", repr(rate), term="optimizer")


def modules_are_trainable(at: Index, stage: Stage) -> Faults:
    """A train stage trains something, and nothing twice."""
    if not stage.modules:
        yield fault(stage, "a module to train", "none", term="modules")
    elif all(at.modules[name].trainable is False for name in stage.modules):
        names = ", ".join(map(repr, stage.modules))
        yield fault(stage, "a trainable module", f"{names}, none of which is", "trainable=True")
    if len(set(stage.modules)) != len(stage.modules):
        yield fault(stage, "each module once", ", ".join(stage.modules), term="modules")


def encoders_are_upstream(at: Index, stage: Stage) -> Faults:
    """Gradients return by the way that features came, on which only joins and packs lie."""
    inner = _through_joins(at, stage)
    applied = {m: s for s in at.ancestors(stage) if s.op == "apply" for m in s.modules}
    for name in stage.modules[1:]:
        if name not in applied:
            yield fault(
                stage,
                f"module {name!r} applied to what it trains on",
                "no such apply stage before it",
                nearest(name, applied),
                term=name,
            )
        elif applied[name].name not in inner:
            yield fault(
                stage,
                f"only joins and packs between {applied[name].name!r} and itself, for the gradient "
                f"of {name!r} to return",
                "other stages",
                f"do them before {applied[name].name!r}, or train {stage.modules[0]!r} alone",
                term=name,
            )


def _through_joins(at: Index, stage: Stage) -> set[str]:
    """Apply stages from which only joins and packs lead here."""
    found: set[str] = set()
    waiting = [stage]
    while waiting:
        for parent in at.parents(waiting.pop()):
            if parent.op == "apply":
                found.add(parent.name)
            elif parent.op in ("join", "pack"):
                waiting.append(parent)
    return found


def joined_items_replace_tokens(at: Index, stage: Stage) -> Faults:
    """Items joined where the loss runs stand for placeholder tokens; one stream has such items."""
    found: list[str] = []
    for join in _joins_before(at, stage):
        key = read_type(at, join).key
        for name in join.inputs[1:]:
            record = at.streams[name].type
            if record.key == key:
                continue
            found.append(name)
            if attribute(join, "placeholder") < 0:
                yield fault(
                    join,
                    f"a placeholder, the token that the items of {name!r} take the place of in "
                    f"{stage.name!r}",
                    "none",
                    "placeholder=<token id>, one such token a feature",
                    term="placeholder",
                )
    if len(found) > 1:
        got = ", ".join(map(repr, found))
        yield fault(stage, "items of one stream, to take the place of tokens", got)


def _joins_before(at: Index, stage: Stage) -> list[Stage]:
    """Joins whose records this train stage reads, but for packs just as they are."""
    found: list[Stage] = []
    before = at.producer(stage.inputs[0])
    while before is not None and before.op in ("join", "pack"):
        found += [before] if before.op == "join" else []
        before = at.producer(before.inputs[0])
    return found


def features_stay_in_trainers(at: Index, stage: Stage) -> Faults:
    """Features that take the place of tokens do so where the loss runs, which must do the join."""
    waiting = [stage] if attribute(stage, "placeholder") >= 0 else []
    while waiting:
        for reader in at.children(waiting.pop()):
            if reader.op in ("join", "pack"):
                waiting.append(reader)
            elif reader.op != "train":
                yield fault(
                    stage,
                    "to be read by train stages only, since it names a placeholder",
                    f"{reader.name!r}, a {reader.op}",
                    f"join once more for {reader.name!r}, without a placeholder",
                )


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
    """Packed rows exist in trainers only; a row holds at least a token."""
    for reader in at.children(stage):
        if reader.op != "train":
            yield fault(
                stage,
                "to be read by train stages only",
                f"{reader.name!r}, a {reader.op}",
                f"pack behind {reader.name!r}",
            )
    if attribute(stage, "tokens") < 1:
        yield fault(stage, "tokens >= 1", str(attribute(stage, "tokens")), term="tokens")


def evaluated_stage_exists(at: Index, stage: Stage) -> Faults:
    """`of` names a train or an episodes stage; a train stage's evaluation has a metric."""
    name = attribute(stage, "of")
    candidates = [s.name for s in at.graph.stages if s.op in ("train", "episodes")]
    if name not in candidates:
        hint = nearest(name, candidates)
        yield fault(stage, "a train or episodes stage as `of`", repr(name), hint, term=name)
    elif at.stages[name].op == "train" and stage.function is None:
        yield fault(stage, "a metric, since it evaluates a train stage", "none")
    if attribute(stage, "samples") < 1:
        yield fault(stage, "samples >= 1", str(attribute(stage, "samples")), term="samples")
    if attribute(stage, "every") < 0:
        yield fault(stage, "every >= 0", str(attribute(stage, "every")), term="every")


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
    "pack": (tokens_are_there, pack_feeds_trainers),
    "join": (features_stay_in_trainers,),
    "train": (
        counts_are_positive,
        batch_divides,
        optimizer_is_known,
        modules_are_trainable,
        tokens_are_there,
        loss_has_its_fields,
        reference_stays,
        encoders_are_upstream,
        joined_items_replace_tokens,
        sampled_tokens_have_a_chance,
    ),
    "evaluate": (evaluated_stage_exists,),
}


STEP_RULES: tuple[GraphRule, ...] = (steps_agree, one_trainer_a_module)
"""Rules of the whole graph that rest on all stages being legal."""
