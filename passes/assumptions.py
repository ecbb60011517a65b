"""Numbers that stand in where neither the graph nor a measurement says anything.

Each is named in the decision or the message that rests on it. None changes a result: they only
weigh one plan against another.
"""

PROMPT_TOKENS = 32
RESPONSE_TOKENS = 32
SAMPLE_TOKENS = 64  # tokens of a record whose length is not declared
RAGGED_LENGTH = 64  # entries of a ragged or symbolic dim that holds no tokens
TEXT_BYTES = 64

CPU_FLOPS = 7e10  # fp32 matmul, one core: 70-90 GFLOP/s measured on Zen 3
DEVICE_FLOPS = 1e14  # an accelerator of no stated speed
CPU_BANDWIDTH = 1e10  # bytes/s, one core
DEVICE_BANDWIDTH = 1e12
EFFICIENCY = 0.4  # share of the peak that training reaches
KERNEL_SECONDS = 5e-6  # launch of one operation of torch's
KERNELS_A_LAYER = 20
GENERIC_PARAMETERS = 1_000_000  # of a module without a description

STAGE_SECONDS = 2e-4
"""What the user's code takes a sample or a trajectory. Only a profile can know."""
