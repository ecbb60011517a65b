"""Rollout engines: calls of token ids in, completions of token ids out."""
