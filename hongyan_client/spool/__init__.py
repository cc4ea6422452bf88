"""The spool: records on disk that Kafka does not take now (docs/spool.md).

Its modules, in the order in which a record meets them:

spool     keeps records for the client, and drains them: `Spool`
commits   one fsync for the records of all threads that wait
store     the statements: keep, heads, settle, expire, park, list
file      one SQLite connection with its settings, its size limit and its errors
rows      a record as the file has it, with its checksum
schema    the tables
locks     locks between processes, and the marker that says whether records wait
drain     one pass: the head of each key to Kafka, as one process at a time
salvage   reads what a damaged file still gives
folder    the file, its locks and the processes that write to it
command   `hongyan-spool`, with manual_drain and listing
errors    the errors of this package
"""
