"""Fill, balance and time of the packing and dealing in `flowgraph.runtime.policy`."""
