"""Algorithms as small pure files: how rewards become credit, and how credit becomes a loss.

`algorithm.py` states what an algorithm is; `grpo.py` shows how to write one. No file here
imports torch: a loss only calls methods of the tensors it is given.
"""
