"""One module per provider, with its wire facts and their sources in the docstring.

The folder is the list: every module here has CHANNELS, the adapters it brings; a name that begins with
an underscore is shared by several and brings none.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from channels.channel import Channel

ADAPTERS: Final[Mapping[str, Channel]] = {
    channel.provider: channel
    for found in iter_modules(__path__)
    if not found.name.startswith("_")
    for channel in import_module(f"{__name__}.{found.name}").CHANNELS
}
