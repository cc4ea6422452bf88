"""Kafka: clients, what brokers and topics must be set to, and an in-process broker for `hongyan demo`."""
