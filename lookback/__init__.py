"""Transactional messages on Kafka: prepare, commit, rollback, check-back, archive.

states        states, events and the table of moves
transaction   one row, and the terms of its kind
decisions     record, answer, time or person → row and alert; pure
sql, store    the rows in PostgreSQL or SQLite
consumer      records of the topic → store → offsets
dead_letters  records that cannot be applied
check         the question to the business
scheduler     the checks that are due
forwarder     committed messages → their topics
operator, desk  the moves of a person
archive, history, upkeep  past days
metrics, opening, wiring, process  the process
"""
