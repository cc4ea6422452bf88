"""The providers' wire protocols, checked as strictly as the providers do; one module each.

An account's endpoint chooses: `http://HOST:PORT/<protocol>[/anything]`, where `<protocol>` is the
protocol's `name`. Any other path speaks the webhook protocol. The folder is the list: every module
here has PROTOCOLS, its classes. No module here imports an adapter: it would share the adapter's mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from simulator.wire import ProtocolContext, WireProtocol

PROTOCOLS: Final[Mapping[str, Callable[[ProtocolContext], WireProtocol]]] = {
    protocol.name: protocol
    for found in iter_modules(__path__)
    if not found.name.startswith("_")
    for protocol in import_module(f"{__name__}.{found.name}").PROTOCOLS
}
