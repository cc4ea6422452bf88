"""Ends of deliveries on their way to the business: announced lanes, statements that write ends, outbox."""
