"""How records travel: in a process, between processes of a host, between hosts and devices."""
