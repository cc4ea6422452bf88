"""Records that cannot become deliveries: writing, reading and replaying them, and their quota."""
