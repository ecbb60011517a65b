"""The compiler: from a checked flow graph and a cluster to an explained plan.

Imports neither torch nor zmq, and solvers only where they are used.
"""

from flowgraph.passes.pipeline import PIPELINE, compile_graph

__all__ = ["PIPELINE", "compile_graph"]
