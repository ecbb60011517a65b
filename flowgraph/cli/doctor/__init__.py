"""What a run needs of this machine: `probes.py` tries it, `checks.py` says what to do."""
