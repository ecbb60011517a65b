"""The processes of a run: `entry.py` starts one; `stage`, `engine` and `gang` are its kinds."""
