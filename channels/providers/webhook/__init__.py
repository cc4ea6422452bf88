"""Our own webhook protocol."""
