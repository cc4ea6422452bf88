"""Live pages: one reader a process, shared by all who watch."""
