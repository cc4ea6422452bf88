"""Transactional messages on Kafka: prepare, commit, rollback, check-back, archive.

states      states, events and the table of moves
check       the question to the business
operator    the moves of a person
"""
