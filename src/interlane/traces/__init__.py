"""Traces: readers, the canonical schema, sampling, clusters, statistics and synthesis."""
