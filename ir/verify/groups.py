"""Rules of a plan's groups: whose weights they hold, where they live, who takes turns with whom."""

from flowgraph.ir.verify.faults import nearest, repeated
from flowgraph.ir.verify.plan_index import PlanFaults, PlanIndex, PlanRule, plan_fault

KINDS = ("stage", "engine", "gang")
RESIDENCIES = ("resident", "offloaded", "destroyed")


def groups_are_named_once(at: PlanIndex) -> PlanFaults:
    """Groups have names of their own."""
    for name in repeated(group.name for group in at.plan.groups):
        yield plan_fault("group", name, "a name of its own", "it twice", f"one {name!r}")


def kinds_of_groups_are_known(at: PlanIndex) -> PlanFaults:
    """A group is of a known kind."""
    for group in at.plan.groups:
        if group.kind not in KINDS:
            hint = nearest(group.kind, KINDS)
            got = repr(group.kind)
            yield plan_fault("group", group.name, "a kind of group", got, hint, term=group.kind)


def groups_have_modules(at: PlanIndex) -> PlanFaults:
    """Engines and gangs hold a declared module."""
    for group in at.plan.groups:
        if group.kind in ("engine", "gang") and group.module not in at.flow.modules:
            hint = nearest(group.module, at.flow.modules)
            got = repr(group.module)
            yield plan_fault("group", group.name, "a declared module", got, hint, term="module")


def groups_answer_agents(at: PlanIndex) -> PlanFaults:
    """The agents whose calls a group answers are declared."""
    for group in at.plan.groups:
        for agent in group.agents:
            if agent not in at.flow.agents:
                hint = nearest(agent, at.flow.agents)
                got = repr(agent)
                yield plan_fault("group", group.name, "declared agents", got, hint, term=agent)


def groups_have_processes(at: PlanIndex) -> PlanFaults:
    """A group has a process or more, each with something in flight."""
    for group in at.plan.groups:
        if group.replicas < 1 or group.in_flight < 1:
            got = f"replicas={group.replicas}, in_flight={group.in_flight}"
            term = "replicas" if group.replicas < 1 else "in_flight"
            expects = "replicas and in_flight >= 1"
            yield plan_fault("group", group.name, expects, got, f"{term}=1", term=term)


def layouts_are_counted(at: PlanIndex) -> PlanFaults:
    """A layout splits a module one way or more of each sort."""
    for group in at.plan.groups:
        for way in ("dp", "tp", "pp", "cp"):
            if (count := getattr(group.layout, way)) < 1:
                got, hint = f"{way}={count}", f"{way}=1"
                yield plan_fault("group", group.name, f"{way} >= 1", got, hint, term=way)


def gangs_have_ranks(at: PlanIndex) -> PlanFaults:
    """A gang has a process for each rank of its layout."""
    for group in at.plan.groups:
        ranks = group.layout.ranks
        if group.kind == "gang" and ranks != group.replicas:
            got = f"{ranks} ranks in {group.replicas} processes"
            hint = f"replicas={ranks}, with as many places"
            expects = "a process for each rank"
            yield plan_fault("group", group.name, expects, got, hint, term="layout")


def engines_are_whole(at: PlanIndex) -> PlanFaults:
    """The processes of an engine group are those of whole engines."""
    for group in at.plan.groups:
        ranks = group.layout.ranks
        if group.kind == "engine" and group.replicas % ranks:
            got = f"{group.replicas} processes for engines of {ranks}"
            hint = f"replicas={group.replicas - group.replicas % ranks or ranks}"
            yield plan_fault("group", group.name, "whole engines", got, hint, term="layout")


def engines_hold_rows(at: PlanIndex) -> PlanFaults:
    """An engine decodes a row or more, of a token or more."""
    for group in at.plan.groups:
        if group.kind == "engine" and (group.slots < 1 or group.max_length < 1):
            got = f"slots={group.slots}, max_length={group.max_length}"
            term = "slots" if group.slots < 1 else "max_length"
            expects = "slots and max_length >= 1"
            yield plan_fault("group", group.name, expects, got, f"{term}=1", term=term)


def processes_have_places(at: PlanIndex) -> PlanFaults:
    """Each process has a place."""
    for group in at.plan.groups:
        if len(group.places) != group.replicas:
            got = f"{len(group.places)} places"
            missing = group.replicas - len(group.places)
            hint = f"{missing} more" if missing > 0 else f"{-missing} fewer"
            expects = f"a place for each of {group.replicas} replicas"
            yield plan_fault("group", group.name, expects, got, hint, term="places")


def places_are_on_nodes(at: PlanIndex) -> PlanFaults:
    """A place is on a node of the cluster."""
    nodes = [node.name for node in at.plan.cluster.nodes]
    known = set(nodes)
    for group in at.plan.groups:
        for name in dict.fromkeys(place.node for place in group.places):
            if name not in known:
                hint, expects = nearest(name, nodes), "places on the cluster's nodes"
                yield plan_fault("group", group.name, expects, repr(name), hint, term=name)


def devices_are_there(at: PlanIndex) -> PlanFaults:
    """A place is on a device that the node has, or on its cores (-1)."""
    nodes = {node.name: node for node in at.plan.cluster.nodes}
    for group in at.plan.groups:
        for place in group.places:
            have = nodes[place.node].devices
            if not -1 <= place.device < have:
                got = f"device {place.device} of {have} on {place.node}"
                hint = f"a device from 0 to {have - 1}, or -1 for the node's cores"
                expects = "places on devices that there are"
                yield plan_fault("group", group.name, expects, got, hint, term="places")


def devices_are_not_crowded(at: PlanIndex) -> PlanFaults:
    """A device has no more workers than slots; who takes turns on it is counted once."""
    load: dict[tuple[str, int], int] = {}
    for group in at.plan.groups:
        for place in group.places:
            if place.device >= 0 and not group.shares:
                key = (place.node, place.device)
                load[key] = load.get(key, 0) + 1
    nodes = {node.name: node for node in at.plan.cluster.nodes}
    for (name, device), count in sorted(load.items()):
        slots = at.plan.cluster.kind(nodes[name].device).slots
        if count > slots:
            expects = f"{slots} workers on device {device}"
            yield plan_fault("node", name, expects, str(count), f"{count - slots} elsewhere")


def residencies_are_known(at: PlanIndex) -> PlanFaults:
    """Between turns a group's state is resident, offloaded or destroyed."""
    for group in at.plan.groups:
        if group.residency not in RESIDENCIES:
            hint, got = nearest(group.residency, RESIDENCIES), repr(group.residency)
            yield plan_fault("group", group.name, "a residency", got, hint, term="residency")


def turns_are_of_gangs(at: PlanIndex) -> PlanFaults:
    """Who shares devices is a gang, and takes turns with a gang that has devices of its own."""
    for group in at.plan.groups:
        if not group.shares:
            continue
        owner = at.groups.get(group.shares)
        if owner is None or owner.kind != "gang" or owner.shares or group.kind != "gang":
            owners = [g.name for g in at.plan.groups if g.kind == "gang" and not g.shares]
            hint = nearest(group.shares, (name for name in owners if name != group.name))
            got = repr(group.shares)
            expects = "to share a gang's own devices"
            yield plan_fault("group", group.name, expects, got, hint, term="shares")


def turns_are_on_the_same_places(at: PlanIndex) -> PlanFaults:
    """Who takes turns does so on some of the places of the gang that it shares with."""
    for group in at.plan.groups:
        owner = at.groups.get(group.shares)
        if owner is not None and not set(group.places) <= set(owner.places):
            hint = f"places among those of {owner.name!r}"
            expects = f"places of {owner.name!r}"
            yield plan_fault("group", group.name, expects, "others", hint, term="places")


def rooms_are_of_groups(at: PlanIndex) -> PlanFaults:
    """Room to move is of a group, and each group has one at most."""
    seen: set[str] = set()
    for room in at.plan.rooms:
        if room.group not in at.groups or room.group in seen:
            hint = nearest(room.group, at.groups)
            yield plan_fault("room", room.group, "a group of its own", "none or another's", hint)
        seen.add(room.group)


def rooms_are_around_their_groups(at: PlanIndex) -> PlanFaults:
    """Room to move is around what the group has now."""
    for room in at.plan.rooms:
        count = at.groups[room.group].replicas
        if not 1 <= room.least <= count <= room.most:
            got = f"{room.least} to {room.most}"
            hint = f"least={min(max(1, room.least), count)} most={max(room.most, count)}"
            expects = f"{count} processes within it"
            yield plan_fault("room", room.group, expects, got, hint, term="least")


GROUP_RULES: tuple[PlanRule, ...] = (
    groups_are_named_once,
    kinds_of_groups_are_known,
    groups_have_modules,
    groups_answer_agents,
    groups_have_processes,
    layouts_are_counted,
    gangs_have_ranks,
    engines_are_whole,
    engines_hold_rows,
    processes_have_places,
    places_are_on_nodes,
    devices_are_there,
    devices_are_not_crowded,
)

ROOM_RULES: tuple[PlanRule, ...] = (
    residencies_are_known,
    turns_are_of_gangs,
    turns_are_on_the_same_places,
    rooms_are_of_groups,
    rooms_are_around_their_groups,
)
