"""The audit: an append-only table whose rows are chained, and its check."""
