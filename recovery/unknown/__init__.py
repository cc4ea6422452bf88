"""Resolution of calls in doubt."""
