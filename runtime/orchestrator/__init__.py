"""The orchestrator's core: `step(state, event, now) -> actions`, without I/O.

Start with `core.py`; `state.py` holds what it knows, `dispatch.py` who gets work, `updates.py` when
weights move, `blocks.py` when memory is given back, `membership.py` which samples a step has.
"""
