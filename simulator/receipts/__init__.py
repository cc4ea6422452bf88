"""Receipts that the simulator posts: `plan` (which follow, and when), `receipt_format` with `formats/` (in
which words), `poster` (pushes them)."""
