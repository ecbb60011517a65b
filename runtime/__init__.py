"""Executes plans: orchestrator, shell, workers, pool, engines, trainers, reference."""
