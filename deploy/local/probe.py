"""Is a server answering? Asked in its own protocol: an open port alone promises nothing."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.local.layout import HOST

_TIMEOUT_S = 2.0
_METADATA, _METADATA_VERSION = 3, 4


def port_open(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(_TIMEOUT_S)
        return client.connect_ex((HOST, port)) == 0


def port_free(port: int) -> bool:
    with socket.socket() as server:
        # As servers do: connections of a former server that linger in TIME_WAIT take no port.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((HOST, port))
        except OSError:
            return False
        return True


@contextmanager
def held(port: int) -> Iterator[bool]:
    """Whether nobody had the port, and it is ours until the end; the kernel gives it back if we die."""
    with socket.socket() as holder:
        try:
            holder.bind((HOST, port))  # without SO_REUSEADDR, which would let several of us have it
        except OSError:
            yield False
        else:
            yield True


def http_answers(port: int, path: str) -> bool:
    """200, to a plain GET."""
    request = f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection((HOST, port), _TIMEOUT_S) as client:
            client.sendall(request.encode())
            return _exactly(client, len(b"HTTP/1.1 200")) == b"HTTP/1.1 200"
    except OSError:
        return False


def redis_answers(port: int) -> bool:
    """PONG, and not LOADING."""
    try:
        with socket.create_connection((HOST, port), _TIMEOUT_S) as client:
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def mariadb_answers(port: int) -> bool:
    """A greeting of protocol 10, and no error packet: three bytes of length, a number, the version."""
    try:
        with socket.create_connection((HOST, port), _TIMEOUT_S) as client:
            return _exactly(client, 5)[4] == 10
    except OSError:
        return False


def kafka_brokers(port: int) -> set[int]:
    """The numbers of the brokers that this one sees in service; none when it does not answer.

    A broker takes connections before the controller lets it serve; only then is it in the list.
    """
    try:
        with socket.create_connection((HOST, port), _TIMEOUT_S) as client:
            client.sendall(metadata_request())
            return brokers_in(_frame(client))
    except (OSError, struct.error):
        return set()


def metadata_request() -> bytes:
    """Metadata for no topic: https://kafka.apache.org/protocol#The_Messages_Metadata."""
    name = b"hongyan-stack"
    header = struct.pack(">hhih", _METADATA, _METADATA_VERSION, 1, len(name)) + name
    body = struct.pack(">i?", 0, False)
    return struct.pack(">i", len(header + body)) + header + body


def brokers_in(frame: bytes) -> set[int]:
    (count,) = struct.unpack_from(">i", frame, 8)  # after the correlation id and the throttle time
    found, at = set(), 12
    for _ in range(count):
        number, host = struct.unpack_from(">ih", frame, at)
        at += 6 + host + 4  # number, host, port
        (rack,) = struct.unpack_from(">h", frame, at)
        at += 2 + max(rack, 0)  # −1: none
        found.add(number)
    return found


def _frame(client: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(client, 4))
    return _exactly(client, size)


def _exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        if not part:
            raise ConnectionError("closed before the whole answer came")
        data += part
    return data
