"""The reference executor, which everything else is compared with: start with `executor.py`."""
