"""Kafka's side of the worker: group member, source, offsets, commits, backpressure, bad records."""
