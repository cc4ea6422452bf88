"""Measurements: ratios taken side by side in one run, printed by commands, never asserted by tests."""
