"""The outside systems: Kafka, Redis, SQL; factories with safe settings, and embedded twins."""
