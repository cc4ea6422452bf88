"""The pages. This folder is the registry: each module here, or in a folder here, is one page or a few
that belong together.

A page exports `HANDLERS`, and `BOARDS` if it has live parts. A module with neither is a part of the pages
beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Any, Final

from admin.live.spec import BoardSpec
from admin.web.threads import on_threads


def _modules() -> Iterator[ModuleType]:
    for found in walk_packages(__path__, f"{__name__}."):
        yield import_module(found.name)


_PAGES: Final = tuple(_modules())
HANDLERS: Final[list[Any]] = [
    on_threads(handler) for page in _PAGES for handler in getattr(page, "HANDLERS", ())
]
BOARDS: Final[list[BoardSpec]] = [board for page in _PAGES for board in getattr(page, "BOARDS", ())]
