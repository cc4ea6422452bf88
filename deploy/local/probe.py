"""Is a server answering? Asked in its own protocol: an open port alone promises nothing."""

import socket
import struct

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


def redis_answers(port: int) -> bool:
    """PONG, and not LOADING."""
    try:
        with socket.create_connection((HOST, port), _TIMEOUT_S) as client:
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def kafka_brokers(port: int) -> int:
    """How many brokers this one sees in service, itself included; 0 when it does not answer.

    A broker takes connections before the controller lets it serve; only then is it in the list.
    """
    try:
        with socket.create_connection((HOST, port), _TIMEOUT_S) as client:
            client.sendall(metadata_request())
            return brokers_in(_frame(client))
    except (OSError, struct.error):
        return 0


def metadata_request() -> bytes:
    """Metadata for no topic: https://kafka.apache.org/protocol#The_Messages_Metadata."""
    name = b"hongyan-stack"
    header = struct.pack(">hhih", _METADATA, _METADATA_VERSION, 1, len(name)) + name
    body = struct.pack(">i?", 0, False)
    return struct.pack(">i", len(header + body)) + header + body


def brokers_in(frame: bytes) -> int:
    _correlation, _throttle, count = struct.unpack_from(">iii", frame)
    return int(count)


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
