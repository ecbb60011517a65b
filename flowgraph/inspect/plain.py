"""A plan's explanation as one object of plain data: what `inspect --json` prints."""

from dataclasses import asdict
from typing import Any

from flowgraph.inspect.facts import Facts
from flowgraph.inspect.neighbour_words import neighbour_sentence
from flowgraph.inspect.parts import Part
from flowgraph.ir.plan import Plan


def described(facts: Facts) -> dict[str, Any]:
    """Keys as the manual of the command line lists them. `plan` is the plan itself."""
    from flowgraph.ir.binary import plan_hash
    from flowgraph.ir.plain import to_plain

    plan = facts.plan
    return {
        "graph": plan.graph.name,
        "cluster": plan.cluster.name,
        "plan_hash": plan_hash(plan),
        "step_s": facts.step_s,
        "rate": facts.rate,
        "bound_s": facts.bound_s,
        "basis": facts.basis,
        "limit": {"kind": facts.path.kind, "at": facts.path.at, "why": facts.path.why},
        "critical_path": [asdict(leg) for leg in facts.path.legs],
        "modules": _modules(facts),
        "parts": {part.name: _part(part) for part in facts.parts},
        "devices_used": facts.devices_used,
        "devices": [asdict(used) for used in facts.devices],
        "channels": [asdict(way) for way in facts.ways],
        "pool_bytes": plan.pool_bytes,
        "schedule": to_plain(plan.schedule),
        "staleness": [asdict(edge) for edge in facts.edges],
        "pins": dict(facts.pins),
        "rooms": [to_plain(room) for room in plan.rooms],
        "neighbours": [
            {**asdict(neighbour), "said": neighbour_sentence(plan, neighbour)}
            for neighbour in plan.neighbours
        ],
        "decisions": [to_plain(decision) for decision in plan.decisions],
        "plan": to_plain(plan),
    }


def _part(part: Part) -> dict[str, Any]:
    plain = asdict(part)
    plain["reason"] = plain.pop("why")
    plain["runner_up"] = part.runner_up or None
    return plain


def _modules(facts: Facts) -> dict[str, dict[str, Any]]:
    """By module: as its gang has it, else as its first engines do; devices are those of all parts.

    replicas: whole copies of the module that share that part's work.
    """
    found = {}
    for module in facts.plan.graph.modules:
        own = [part for part in facts.parts if part.module == module.name]
        if not own:
            continue
        first = next((part for part in own if part.kind == "gang"), own[0])
        found[module.name] = {
            "devices": _devices(facts.plan, module.name),
            "layout": first.layout,
            "replicas": first.copies,
            "reason": first.why,
            "runner_up": first.runner_up or None,
            "measured": all(part.measured for part in own),
            "seconds": first.seconds,
            "memory_bytes": first.memory_bytes,
            "pinned": first.pinned,
            "parts": [part.name for part in own],
        }
    return found


def _devices(plan: Plan, module: str) -> int:
    return len(
        {
            (place.node, place.device)
            for group in plan.groups
            for place in group.places
            if group.module == module and place.device >= 0
        }
    )
