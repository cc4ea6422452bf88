"""Output of single commands."""
