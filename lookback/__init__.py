"""Transactional messages on Kafka: prepare, commit, rollback, check-back, archive."""
