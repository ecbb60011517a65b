"""What `flowgraph inspect` and `diff` show of a plan: facts first, then text, JSON or a page."""
