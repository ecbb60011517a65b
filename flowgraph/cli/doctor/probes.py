"""`python -m flowgraph.cli.doctor.probes NAME [ARGUMENT]`: one thing tried out.

Prints what was found; any exception is the finding that it does not work. Each runs in a process
of its own, since what is broken may crash or hang.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

WAIT_MS = 10_000


def torch() -> str:
    import torch

    eye = torch.eye(64)
    if float((eye @ eye).sum()) != 64:
        raise ArithmeticError("the identity times itself is not the identity")
    return f"{torch.__version__} multiplies matrices"


def triton() -> str:
    import triton

    return f"{triton.__version__}"


def zmq() -> str:
    """One message over ipc."""
    import zmq

    with tempfile.TemporaryDirectory() as folder:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        one, other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        one.bind(f"ipc://{folder}/probe")
        other.connect(f"ipc://{folder}/probe")
        other.send(b"hello")
        arrived = bool(one.poll(WAIT_MS)) and one.recv() == b"hello"
        one.close(0)
        other.close(0)
        context.term()
    if not arrived:
        raise TimeoutError(f"a message over ipc did not arrive within {WAIT_MS // 1000} s")
    return f"{zmq.__version__} carries messages over ipc"


def solver(name: str) -> str:
    """Maximise x + y for whole x, y with x + 2y <= 6 and 2x + y <= 6: 4."""
    import pulp

    problem = pulp.LpProblem("probe", pulp.LpMaximize)
    if hasattr(problem, "add_variable"):  # PuLP 4 has no other way
        x, y = (problem.add_variable(n, 0, 9, cat="Integer") for n in "xy")
    else:
        x, y = (pulp.LpVariable(n, 0, 9, cat="Integer") for n in "xy")
    problem += x + y
    problem += x + 2 * y <= 6
    problem += 2 * x + y <= 6
    problem.solve(pulp.getSolver(name, msg=False, timeLimit=WAIT_MS // 1000))
    best = pulp.value(problem.objective)
    if best is None or round(best) != 4:
        raise ValueError(f"the best value is 4, the solver says {best}")
    return "solves a small program"


def shared_memory() -> str:
    """A sealed memfd that another process reads by its path in /proc."""
    import fcntl

    descriptor = os.memfd_create("flowgraph-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, b"hello")
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    code = f"import sys; sys.stdout.write(open({path!r}).read())"
    read = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if read.stdout != "hello":
        raise ValueError(f"another process read {read.stdout!r}")
    return "another process reads what this one wrote"


def workers() -> str:
    """The process that workers are forked from starts, and ends with its input."""
    command = [sys.executable, "-m", "flowgraph.runtime.launch.zygote"]
    done = subprocess.run(command, input=b"", stdout=subprocess.PIPE, check=True)
    if "ready" not in json.loads(done.stdout.splitlines()[0]):
        raise ValueError(f"it said {done.stdout!r}")
    return "the process that forks them starts and ends"


def gloo() -> str:
    """Two processes add one and one over loopback."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    from torch import distributed

    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        distributed.init_process_group(
            "gloo", init_method=f"file://{Path(folder, 'store')}", rank=int(not child), world_size=2
        )
        total = torch.ones(1)
        distributed.all_reduce(total)
        distributed.destroy_process_group()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    if total.item() != 2:
        raise ValueError(f"one and one is {total.item()}")
    return "two ranks add over loopback"


PROBES: dict[str, Callable[..., str]] = {
    probe.__name__: probe for probe in (torch, triton, zmq, solver, shared_memory, workers, gloo)
}


def main() -> None:
    name, *arguments = sys.argv[1:]
    print(PROBES[name](*arguments))


if __name__ == "__main__":
    main()
