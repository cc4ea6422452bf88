"""Apple's push notifications."""
