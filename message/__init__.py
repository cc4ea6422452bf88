"""The vocabulary every other package speaks: notification, delivery, outcome, state. No I/O here."""
