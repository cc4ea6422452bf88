"""One module per provider, with its wire facts and their sources in the docstring; each has PARSERS."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from receipts.push import Parser

PARSERS: Final[Mapping[str, Parser]] = {
    parser.provider: parser
    for found in iter_modules(__path__)
    if not found.name.startswith("_")
    for parser in import_module(f"{__name__}.{found.name}").PARSERS
}
