"""What the runtime costs: an example against the same training written as one plain torch loop."""
