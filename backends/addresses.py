"""Addresses to listen on: `HOST:PORT`, an IPv6 host in brackets."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final, NamedTuple

from backends.settings import SettingsError

_MAX_PORT: Final = 65_535
_BACKLOG: Final = 1_024
"""Connections that may wait to be accepted."""


class Address(NamedTuple):
    """Host and port to listen on; port 0: any that is free."""

    host: str
    port: int

    @property
    def family(self) -> socket.AddressFamily:
        """IPv6 for a host with colons."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str, key: str, example: str) -> Address:
    """Returns the address in `text`, the value of setting `key`. Raises SettingsError."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    fits = colon and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= _MAX_PORT
    if not fits or not bare or not _is_host(bare, bracketed):
        raise SettingsError(
            f"{key}: {text!r}: write HOST:PORT, as {example} or [::1]:{example[-4:]}"
        )
    return Address(bare, int(port))


def listening(address: Address) -> socket.socket:
    """Returns a socket that listens at the address. Raises OSError.

    Its connections send at once, without Nagle's algorithm: an answer in two writes would wait up to 40 ms
    for the client's delayed acknowledgement of the first. asyncio sees to it only on sockets that name TCP
    as their protocol, and those of `create_server` do not (decision 288).
    """
    made = socket.create_server(
        (address.host, address.port), family=address.family, backlog=_BACKLOG
    )
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
    return made


def _is_host(host: str, bracketed: bool) -> bool:
    if ":" not in host:
        return not bracketed and host.isprintable() and not set(host) & set(" /@[]")
    try:
        ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return False
    return bracketed
