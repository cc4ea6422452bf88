"""The last metre: one adapter per provider (no I/O in it), outcome mapping, the one transport."""
