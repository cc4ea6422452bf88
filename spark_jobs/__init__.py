"""Spark jobs: what became of every delivery, and which ones are lost (docs/spark.md).

In the order in which data meets them:

    config.py      what a job needs to know; the program hands it in
    session.py     the Spark session, its jars
    tables.py      the tables of the warehouse
    file_format.py how the files of a table are written
    warehouse.py   reads and writes them (Delta Lake)
    ingest/        Kafka topics → records, events, trace_records, dead_letters, ranges, holes
    rebuild/       one row per delivery; funnels, latencies, gaps
    lost/          the ledger is asked, and lost deliveries are proposed
    audit/         counts per lane and hour of every source, compared

The driver runs these modules. Executors run no Python: every column is a native expression. The package
imports `message` and the vocabulary of `tracing` alone.
"""
