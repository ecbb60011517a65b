"""Measured costs of a graph on this machine: what takes the place of the compiler's estimates."""
