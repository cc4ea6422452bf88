"""Records that no delivery can be made of: writing, reading and replaying them, and their quota."""
