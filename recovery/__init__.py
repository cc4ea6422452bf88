"""Recovery: retries, resolves, expires or parks deliveries that did not end well (docs/recovery.md)."""
