"""The addresses that servers listen on."""

from __future__ import annotations

import socket

import pytest

from backends.addresses import Address, listening
from backends.http_server.serving import bound


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_sends_at_once(host: str) -> None:
    with listening(Address(host, 0)) as listener:
        address = listener.getsockname()[:2]
        with socket.create_connection(address), listener.accept()[0] as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_each_server_listens_so() -> None:
    """Console, gateway and receipts are bound by the same function."""
    with bound("127.0.0.1:0", "console.listen", "127.0.0.1:9480") as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
