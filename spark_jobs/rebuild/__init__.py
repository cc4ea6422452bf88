"""One row per delivery, rebuilt from all that is known of it (docs/spark.md).

In the order in which data meets them:

    increment.py   rows that came in since the last rebuild
    unkeyed.py     delivery keys of receivers that Spark cannot normalise
    letters.py     dead letters, by the records that they name
    parts.py       events, records, dead letters and earlier rows in one form
    fold.py        parts → one row per delivery, in one shuffle
    timeline.py    the order of stages; the rule of a row's state
    latencies.py   milliseconds per stage
    missing.py     stages that must have been and are not there
    funnels.py     counts and percentiles by hour, lane, template and account
    gaps.py        missing events by life
    doubles.py     deliveries that were accepted twice
    job.py         one run
"""
