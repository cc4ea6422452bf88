"""Receipts of providers beside the rows they are about."""
