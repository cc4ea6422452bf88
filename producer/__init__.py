"""What lets notifications in: the gateway, the relay of outboxes, campaigns."""
