"""Sockets and names of this machine, for mail."""

from __future__ import annotations

import select
import socket
from ipaddress import ip_address
from typing import Final

_LOOPBACK_NAME: Final = "localhost"


def is_loopback(host: str) -> bool:
    """Returns whether data for the host stays on this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == _LOOPBACK_NAME


def connected(family: int, address: tuple[str, int], timeout_s: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(max(timeout_s, 0.001))
        sock.connect(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        sock.close()
        raise
    return sock


def readable(sock: socket.socket) -> bool:
    """Returns whether there is something to read: unasked, it is a goodbye or the end."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def own_name() -> str:
    """Returns this machine's name if it is a full one, else an address literal; asks no name server."""
    name = socket.gethostname()
    return name if "." in name else "[127.0.0.1]"
