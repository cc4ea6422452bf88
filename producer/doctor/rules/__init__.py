"""The rules of doctor, one module a group: pure functions from facts to what is wrong.

producer_rules, topic_rules, broker_rules, consumer_rules     Kafka
storage_rules                                                 the ledger's database, Redis, clocks
outbox_rules, lookback_rules, spool_rules                     the ways in beside Kafka's clients
cross_rules                                                   between parts
"""
