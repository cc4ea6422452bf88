"""The outside systems, Kafka, Redis, SQL: factories with safe settings, embedded twins. Serving HTTP."""
