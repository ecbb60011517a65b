"""Throughput matching as a pure problem: layouts over parts, on nodes of several kinds."""
