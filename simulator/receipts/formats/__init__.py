"""Receipts in the words of each provider, signed as it signs; one module per provider.

The folder is the list: every module here has FORMATS, the protocols that it reports for. A provider that
signs nothing has its secret in the callback's URL. The others sign with the protocol's `credentials`; each
module names them. Sources: see receipts/parsers/.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from simulator.receipts.receipt_format import Format

FORMATS: Final[Mapping[str, Format]] = {
    name: made
    for found in iter_modules(__path__)
    for name, made in import_module(f"{__name__}.{found.name}").FORMATS.items()
}
