"""The pages, one module each. This list is the registry: a page that is missing here does not exist.

A module exports `HANDLERS`, and `BOARDS` if it has live parts.
"""

from __future__ import annotations

from typing import Any, Final

from admin.live.spec import BoardSpec
from admin.pages import (
    account,
    audit,
    health,
    live,
    login,
    missing,
    overview,
    people,
)
from admin.web.threads import on_threads

_PAGES: Final = (overview, login, account, people, audit, live, health, missing)
HANDLERS: Final[list[Any]] = [on_threads(handler) for page in _PAGES for handler in page.HANDLERS]
BOARDS: Final[list[BoardSpec]] = [board for page in _PAGES for board in getattr(page, "BOARDS", ())]
