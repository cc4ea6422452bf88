"""One delivery, one send: the pre-filter (Redis) in front, the ledger (SQL) as the truth."""
