"""A person's resend of some deliveries: selection, the desk that acts on them, copies for Kafka."""
