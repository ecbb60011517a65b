"""Rules of the rows that agents make: episodes, groups of rows, and the credit given in them."""

from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index, agent_of, attribute
from flowgraph.ir.types import AGENT_ROW
from flowgraph.ir.verify.faults import Faults, StageRule, fault, nearest
from flowgraph.ir.verify.records import differences, missing_field, named, read_type


def credit_reads_rewards(at: Index, stage: Stage) -> Faults:
    """A map that gives credit reads rewards."""
    if attribute(stage, "credit"):
        yield from missing_field(stage, read_type(at, stage), "reward", "field")


def credit_is_by_key(at: Index, stage: Stage) -> Faults:
    """Credit is given by group; groups are by keys of the rows, `sample` first."""
    if not attribute(stage, "credit"):
        return
    keys = attribute(stage, "group")
    if keys[:1] != ("sample",):
        # A stage worker holds a few samples of a step, never all of them.
        hint = f"group={named(('sample', *(key for key in keys if key != 'sample')))}"
        expects = "'sample' as the first key of credit's groups"
        yield fault(stage, expects, named(keys), hint, term="group")
    for name in keys:
        yield from missing_field(stage, read_type(at, stage), name, "group key")


def credit_makes_advantages(at: Index, stage: Stage) -> Faults:
    """A map that gives credit adds an advantage to each row."""
    if not attribute(stage, "credit"):
        return
    made = at.streams[stage.outputs[0]].type.field("advantage")
    if made is None or made.dtype != "float32" or made.dims:
        got = f"'{made}'" if made else "no such field"
        hint = f"'advantage: float32' in the type of {stage.outputs[0]!r}"
        expects = "its output to have 'advantage: float32'"
        yield fault(stage, expects, got, hint, term=stage.outputs[0])


def sizes_are_counts(at: Index, stage: Stage) -> Faults:
    """A group's size is a count, or 0 for all rows."""
    size = attribute(stage, "size")
    if size < 0:
        hint = "size=0, which takes all rows together"
        yield fault(stage, "size >= 0", str(size), hint, term="size")


def group_is_by_key(at: Index, stage: Stage) -> Faults:
    """A group is by fields that are keys of its records."""
    record = read_type(at, stage)
    for name in attribute(stage, "by"):
        yield from missing_field(stage, record, name, "group key")
        if record.field(name) and name not in record.key:
            hint = nearest(name, record.key)
            yield fault(stage, "keys of its records to group by", repr(name), hint, term=name)


def group_ends_with_its_sample(at: Index, stage: Stage) -> Faults:
    """A group ends with its sample, which is its first key."""
    keys = attribute(stage, "by")
    if keys[:1] != ("sample",):
        hint = f"by={named(('sample', *(key for key in keys if key != 'sample')))}"
        yield fault(stage, "'sample' as the first key", named(keys), hint, term="by")


def agents_play(at: Index, stage: Stage) -> Faults:
    """Episodes are played by agents."""
    if not stage.agents:
        names = ", ".join(agent.name for agent in at.graph.agents) or "<an agent>"
        yield fault(stage, "agents to play", "none", f"agents=({names})", term="agents")


def episodes_are_counted(at: Index, stage: Stage) -> Faults:
    """A task has a trajectory or more, and one task or more is in flight."""
    for name in ("trajectories", "in_flight"):
        if attribute(stage, name) < 1:
            got = str(attribute(stage, name))
            yield fault(stage, f"{name} >= 1", got, f"{name}=1", term=name)


def episodes_have_time(at: Index, stage: Stage) -> Faults:
    """A trajectory has some time."""
    if not attribute(stage, "timeout_s") > 0:
        got = str(attribute(stage, "timeout_s"))
        yield fault(stage, "timeout_s > 0", got, "timeout_s=300.0", term="timeout_s")


def outputs_are_of_agents(at: Index, stage: Stage) -> Faults:
    """An episodes stage makes one stream an agent."""
    for output in stage.outputs:
        if not agent_of(stage, output):
            expected = ", ".join(f"{stage.name}.{agent}" for agent in stage.agents)
            hint = nearest(output, [f"{stage.name}.{agent}" for agent in stage.agents])
            yield fault(stage, f"outputs named {expected}", repr(output), hint, term=output)


def episodes_make_rows(at: Index, stage: Stage) -> Faults:
    """What an episodes stage makes are rows of agents, one row a call."""
    for output in stage.outputs:
        made = at.streams[output].type
        if made != AGENT_ROW:
            expects, hint = (
                f"output {output!r} to have rows {AGENT_ROW}",
                differences(AGENT_ROW, made),
            )
            yield fault(stage, expects, str(made), hint, term=output)


ROW_RULES: dict[str, tuple[StageRule, ...]] = {
    "episodes": (
        agents_play,
        episodes_are_counted,
        episodes_have_time,
        outputs_are_of_agents,
        episodes_make_rows,
    ),
    "group": (group_is_by_key, group_ends_with_its_sample, sizes_are_counts),
    "map": (credit_reads_rewards, credit_is_by_key, credit_makes_advantages, sizes_are_counts),
}
