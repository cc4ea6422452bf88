"""`/lost`: deliveries that a Spark job found lost, the jobs' runs, and the audits.

findings   the list; one finding with its proof; resend and dismiss
runs       runs of the Spark jobs
audits     counts of every source per lane and hour
"""
