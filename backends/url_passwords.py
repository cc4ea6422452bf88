"""Passwords in URLs. One may hold any character, also `/`, `?` and `@`: SQLAlchemy takes it unquoted.

So a login reaches from `://` to the last `@`, its password from the first colon. A user name has no `/`:
SQLAlchemy and redis-py see a path there. Each function takes time in proportion to the text.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
_USER: Final = re.compile(r"://[^/:]*:")
_WORD: Final = re.compile(r"\S+")
_PASSWORD_OPTION: Final = re.compile(
    r"[?&]\w*(?:pass(?:word|wd|phrase)|client_secret)=[^&]", re.IGNORECASE
)


def has_password(url: str) -> bool:
    """Returns whether a URL has a password, in its login or as an option."""
    return _password(url) is not None or bool(_PASSWORD_OPTION.search(url))


def hide_password(url: str) -> str:
    """Returns a URL without the password of its login. The whole text is the URL, blanks included."""
    span = _password(url)
    return url if span is None else f"{url[: span[0]]}{HIDDEN}{url[span[1] :]}"


def hide_passwords(text: str) -> str:
    """Returns a text without the passwords of the URLs in it. A URL ends before a blank: `hide_password`
    is for a URL alone."""
    if "://" not in text or "@" not in text:
        return text
    return _WORD.sub(lambda word: hide_password(word[0]), text)


def _password(url: str) -> tuple[int, int] | None:
    """Returns the start and the end of a login's password; None: it has none."""
    user, end = _USER.search(url), url.rfind("@")
    return (user.end(), end) if user and user.end() < end else None
