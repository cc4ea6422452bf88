"""Recovery's part of the ledger: due retries, doubts, their statements."""
