"""The language: what a user declares a graph with. `flowgraph` re-exports the public names.

`graph.py` and `stream.py` are the surface; each kind of stage is checked and recorded in a file
of its own (`transforms.py` shows how); `draft.py` is the graph while it grows.
"""
