"""The worker: records from Kafka to calls, their outcomes in the ledger, dead letters."""
