"""Receipts that the simulator posts: their times, their formats, the poster."""
