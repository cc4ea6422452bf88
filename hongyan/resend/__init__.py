"""`hongyan resend`: options, selection, actions, output."""
