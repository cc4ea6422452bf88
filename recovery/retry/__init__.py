"""Retries of due deliveries."""
