"""Mutated plan files and IR texts: each is read with the same meaning, or refused by name."""
