"""Finding out what became of calls in doubt."""
