"""Tables of the Spark jobs in the ledger's database, in the order in which data meets them.

runs.py          one row per run of a job
candidates.py    a run's candidates become findings at its end
findings.py      findings of lost deliveries, and what was decided about each
trace_hours.py   funnels, latencies, gaps of lives, double sends
audits.py        counts of every source per lane and hour
"""
