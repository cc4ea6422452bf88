"""The vocabulary of all other packages: notification, delivery, outcome, state. No I/O here."""
