"""Recall of messages."""
