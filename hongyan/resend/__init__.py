"""`hongyan resend`: options, selection, the work, what it prints."""
