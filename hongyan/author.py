"""The author of a command, for the trace, the ledger and the policy's history."""

from __future__ import annotations

import getpass
import socket

from hongyan.errors import WrongUsage


def author_of(given: str) -> str:
    """Returns the given name, else `user@host`. Raises WrongUsage for a user without a name."""
    if given.strip():
        return given.strip()
    try:
        user = getpass.getuser()
    except (KeyError, OSError) as exc:
        raise WrongUsage("this user has no name: say who you are with --author NAME") from exc
    return f"{user}@{socket.gethostname()}"
