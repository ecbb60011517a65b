"""Triton kernels with their launchers, one a file; imported by the first launch on a device."""
