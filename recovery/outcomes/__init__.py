"""Publication of outcome events: events (made from rows), topic and webhook (where they go), publisher (the
loop), factory."""
