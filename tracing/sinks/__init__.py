"""Sinks of the trace: each writes batches of events to one place, on a thread of the recorder.

kafka.py      the trace topic, numbered so that missing events are countable
database.py   the ledger's database, for `hongyan trace`
otlp.py       spans to an OpenTelemetry collector
"""
