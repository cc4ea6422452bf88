"""The worker: source, offsets, intake, lanes, settle, lifecycle."""
