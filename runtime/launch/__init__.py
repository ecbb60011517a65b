"""How a plan's processes are started: `local.py` on this machine, by `zygote.py`."""
