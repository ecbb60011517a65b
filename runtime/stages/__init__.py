"""Executors of host stages: the user's functions over batches. No processes, sockets or torch."""
