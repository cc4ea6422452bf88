"""Resend jobs in the ledger: contract, freezing, items, store."""
