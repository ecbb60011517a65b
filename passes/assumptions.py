"""Numbers that stand in where neither the graph nor a measurement says anything.

Each is named in the decision or the message that rests on it. None changes a result: they only
weigh one plan against another. Those of times are in `runtime.policy`.
"""

PROMPT_TOKENS = 32
RESPONSE_TOKENS = 32
RAGGED_LENGTH = 64  # entries of a ragged or symbolic dim that holds no tokens
TEXT_BYTES = 64
