"""The author of a command, for the trace, the ledger, the policy's history and the doctor's results."""

from __future__ import annotations

import getpass
import os
import socket

from hongyan.errors import WrongUsage


def author_of(given: str) -> str:
    """Returns the given name, else `user@host`. Raises WrongUsage for a user without a name."""
    if given.strip():
        return given.strip()
    user = _user()
    if not user:
        raise WrongUsage("this user has no name: say who you are with --author NAME")
    return f"{user}@{socket.gethostname()}"


def observer() -> str:
    """Returns who looks without an order: `user@host`, by the user's number where it has no name."""
    return f"{_user() or f'uid {os.getuid()}'}@{socket.gethostname()}"


def _user() -> str:
    """Returns the user's name; empty without one, as in a container under a free number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
