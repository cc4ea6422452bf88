"""Accounts: the receivers they reach, those of a lane, their time limits."""
