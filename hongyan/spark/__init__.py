"""The program's side of the Spark jobs (docs/spark.md): settings, positions and SQL go in from here.

jars.py            the pinned jars, fetched once
kafka_options.py   `kafka.client` in the words of the Java client
wiring.py          the input of a job: JobConfig, JobContext; its end: JobResult
positions.py       offsets and topic ids of all topics
duty.py            one process at a time
cycle.py           positions, then one job after another
ingest.py, rebuild.py, lost.py, audit.py   one job each: `run_job(context) -> JobResult`
"""
