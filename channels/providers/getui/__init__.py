"""GeTui push."""
