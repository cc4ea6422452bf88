"""Lost deliveries: from a Spark job's finding to the ledger (docs/recovery.md#lost).

rules      what a finding alone decides
records    bodies and dead letters in Kafka
entry      the claim of a found delivery
job        the round: read, check, enter, note
orders     a person's decisions: resend, dismiss
evidence   the delivery in the ledger and the archive, as they are now
silence    questions about deliveries without a receipt
telemetry  metrics, trace events and log
factory    builds the job of a recovery
"""
