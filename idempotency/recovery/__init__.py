"""What recovery asks of the ledger: due retries, doubts, their statements."""
