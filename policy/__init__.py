"""The reliability policy per lane: schema, defaults per kind, loading, versions."""
