"""Claims and outcomes as rows, written in batches: both databases."""
