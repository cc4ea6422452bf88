"""Sums of settled deliveries: what pages show in place of counted rows.

sketch   times as counts of fixed buckets
counter  the minutes of one process, in memory
store    their table: each process writes its own sums, whole
rollup   all processes together, by minute, ten minutes, hour and day
reading  a range of time, from few rows

A process that is killed loses what it had not written yet: at most the seconds of `sending.sum_writer`.
"""
