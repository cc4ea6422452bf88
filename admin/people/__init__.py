"""People: users, roles, sessions, logins and their limits."""
