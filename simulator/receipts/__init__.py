"""Receipts that the simulator posts: when, in which form."""
