"""Counts of every source per lane and hour of the records, compared.

counts.py     Kafka's deliveries by hour, with what letters and the trace know of each
ledger.py     the ledger's rows of the same offsets, grouped in the database
doubles.py    deliveries that a provider accepted twice
balance.py    which differences are explained; pure
job.py        reads, compares, returns the rows
"""
