"""SMS through Twilio."""
