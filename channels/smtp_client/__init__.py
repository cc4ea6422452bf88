"""SMTP: session, login, time limits of each step, the client, the transport."""
