"""Trainers that take turns on device groups, as a pure problem."""
