"""Timings of the kernels beside memory copies and torch's own ways; run with `python -m`."""
