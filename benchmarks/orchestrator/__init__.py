"""How fast the orchestrator's core is, without processes and sockets."""
