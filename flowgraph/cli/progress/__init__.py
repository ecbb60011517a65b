"""How a run is watched: `live.py` on a terminal, `lines.py` elsewhere."""
