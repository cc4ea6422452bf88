"""Parts that several providers share."""
