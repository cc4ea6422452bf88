"""The addresses that servers listen on."""

from __future__ import annotations

import socket
from types import ModuleType

import pytest

from admin import process as console
from backends.addresses import Address, listening
from producer.gateway import process as gateway
from receipts import process as receipts


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_sends_at_once(host: str) -> None:
    with listening(Address(host, 0)) as listener:
        address = listener.getsockname()[:2]
        with socket.create_connection(address), listener.accept()[0] as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("server", [console, gateway, receipts], ids=lambda one: one.__name__)
def test_each_server_listens_so(server: ModuleType) -> None:
    with server._bound("127.0.0.1:0") as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
