"""What did not end well comes back by itself: resent, resolved, expired or parked (docs/recovery.md)."""
