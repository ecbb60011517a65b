"""Gangs: the ranks that hold a module's weights, run it, and train it.

`rank.py` is the executor that workers and the reference drive; everything else is one of its
parts. Nothing here starts a process, opens a socket of its own accord, or knows an algorithm.
"""
