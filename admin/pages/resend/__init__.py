"""`/resend`: resend jobs. Recovery runs them; the pages make, start, approve and stop them.

access     lanes of a job, and who may see and operate it
moments    times as people type them
names      uploaded and pasted ids, line by line
jobs       the list, live
new        the form of a new job
job        one job: preview, progress, items, failures
orders     what a person orders about a job
"""
