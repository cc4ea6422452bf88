"""One folder per provider, with its wire facts and their sources in the docstrings.

The folder is the list: a module of a provider's folder registers the adapters in its CHANNELS. Folders
whose names begin with an underscore are shared by several providers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from channels.channel import Channel


def _adapters() -> Iterator[Channel]:
    for folder in iter_modules(__path__):
        if folder.ispkg and not folder.name.startswith("_"):
            name = f"{__name__}.{folder.name}"
            for module in iter_modules(import_module(name).__path__):
                yield from getattr(import_module(f"{name}.{module.name}"), "CHANNELS", ())


ADAPTERS: Final[Mapping[str, Channel]] = {channel.provider: channel for channel in _adapters()}
