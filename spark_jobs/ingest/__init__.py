"""Ingest: Kafka topics → records, events, trace_records, dead_letters, foreign, ranges, holes.

In the order in which data meets them:

    plan.py          offsets to read, and offsets that are gone; pure
    plan_files.py    keeps each plan in the warehouse before anything is read
    kafka_source.py  reads exactly these offsets
    secrets.py       keys as columns that no plan shows
    receivers.py     delivery keys, masks and hashes of receivers
    records.py       dispatch topics → records
    trace.py         the trace topic → events, trace_records, foreign
    dead_letters.py  the dead letters' topic → dead_letters, foreign
    job.py           one run
    bodies.py        drops bodies that nobody needs any more
"""
