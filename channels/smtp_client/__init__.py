"""SMTP: look-ups of names, session, login, time limits of each step, the client, the transport."""
