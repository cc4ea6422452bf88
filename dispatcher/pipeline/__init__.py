"""A notification's way: expand, gates, claims, lanes, settle, completion."""
