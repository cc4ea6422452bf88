"""The last metre: one adapter per provider (no I/O in it), outcome mapping, and the one transport."""
