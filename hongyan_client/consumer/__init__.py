"""Consumers of outcome events: docs/consumers.md.

event_order   decides which of two events of a delivery is the later one
inbox         applies each event once to a row that others write, too
"""
