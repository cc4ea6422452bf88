"""One HTTP/2 connection over a wire that takes so many bytes: what is told is what the wire took."""

import socket
import ssl
import threading
from collections import deque
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded
from h2.settings import SettingCodes, Settings

from channels.channel import Failure, Phase
from channels.http2_client.connection import Http2Connection
from channels.http2_client.stream import Stream
from channels.http_client.response import LeanResponse
from channels.http_client.sockets import PlainWire
from channels.tls.context import CaBundles, TlsPeer
from channels.tls.tls_socket import TlsWire
from simulator.servers.certificates import Authority
from tests.conformance.senders import post

URL = "http://127.0.0.1:1/hook"
BODY = b'{"attempt":1}'


class Taken:
    """A wire that takes `room` bytes in all, and a peer that keeps them."""

    descriptor = -1

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.taken = b""
        self.coming: deque[bytes] = deque()
        self.ended = False
        self.peer = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.peer.initiate_connection()
        self.coming.append(self.peer.data_to_send())

    def offer(self, data: bytes) -> int:
        assert not self.ended, "something was offered after the end"
        took = data[: max(0, self.room - len(self.taken))]
        self.taken += took
        return len(took)

    def receive_now(self) -> bytes | None:
        return self.coming.popleft() if self.coming else None

    def hang_up(self) -> None:
        self.ended = True

    def close(self) -> None:
        """It is no socket."""

    def silent(self) -> bool:
        return not self.coming

    def send(self, data: bytes, left_s: float) -> int:
        raise AssertionError("it waits for nothing")

    def receive(self, left_s: float) -> bytes:
        raise AssertionError("it waits for nothing")

    def requests(self) -> int:
        """Whole requests in what was taken, as the peer reads them."""
        return sum(isinstance(one, StreamEnded) for one in self.peer.receive_data(self.taken))


def connected(wire: Taken) -> Http2Connection:
    connection = Http2Connection(wire)
    connection.serve()
    return connection


def begun(connection: Http2Connection, body: bytes = BODY, total_s: float = 60.0) -> Stream:
    stream = Stream(post(URL, total_s, body), total_s, lambda _: None)
    assert connection.begin(stream) is True
    return stream


def told(stream: Stream) -> Failure:
    assert isinstance(stream.result, Failure)
    return stream.result


def size_of(body: bytes) -> int:
    """Bytes that leave of a connection and one request."""
    wire = Taken()
    begun(connected(wire), body)
    return len(wire.taken)


@pytest.mark.parametrize("body", [BODY, b""], ids=["body", "no-body"])
@pytest.mark.parametrize("end", ["closed", "reset", "expired"])
def test_at_every_byte_a_call_is_told_as_not_written_until_the_peer_can_read_all_of_it(
    body: bytes, end: str
) -> None:
    whole = size_of(body)
    for room in range(90, whole + 1):
        wire = Taken(room)
        connection = connected(wire)
        stream = begun(connection, body)
        if end == "closed":
            wire.coming.append(b"")
            connection.serve()
        elif end == "reset":
            connection.give_up("reset", "the connection was reset")
        else:
            connection.look_after(stream.deadline, 900.0)
        phase = Phase.WRITTEN if room >= whole else Phase.NOT_WRITTEN
        assert told(stream).phase is phase, room
        wire.room = 1 << 30
        if not wire.ended:
            connection.serve()
            connection.look_after(stream.deadline, 900.0)
        assert wire.requests() == (phase is Phase.WRITTEN), room


def test_what_is_told_as_not_written_does_not_leave_when_the_socket_takes_more() -> None:
    wire = Taken(size_of(BODY) - 1)
    connection = connected(wire)
    stream = begun(connection)
    assert connection.wants_to_write
    connection.look_after(stream.deadline, 900.0)
    assert told(stream).phase is Phase.NOT_WRITTEN
    assert (connection.closed, wire.ended) == (True, True)


def test_the_calls_beside_one_that_the_socket_does_not_take_are_told_apart() -> None:
    wire = Taken()
    connection = connected(wire)
    first = begun(connection)
    wire.room = len(wire.taken) + 10
    second, third = begun(connection, total_s=5.0), begun(connection)
    connection.look_after(second.deadline, 900.0)
    phases = [told(one).phase for one in (first, second, third)]
    assert phases == [Phase.WRITTEN, Phase.NOT_WRITTEN, Phase.NOT_WRITTEN]
    assert wire.requests() == 1


def test_a_call_in_line_is_written_once_the_socket_takes_more() -> None:
    wire = Taken()
    connection = connected(wire)
    wire.room = len(wire.taken) + 10
    begun(connection)
    begun(connection)
    wire.room = 1 << 30
    connection.serve()
    assert not connection.wants_to_write
    assert wire.requests() == 2


def test_an_answer_ends_its_call() -> None:
    wire = Taken()
    connection = connected(wire)
    stream = begun(connection)
    wire.requests()
    wire.peer.send_headers(1, [(":status", "200")], end_stream=True)
    wire.coming.append(wire.peer.data_to_send())
    connection.serve()
    assert isinstance(stream.result, LeanResponse)
    assert connection.ended() == [stream]
    assert connection.ended() == []


def test_calls_that_end_together_are_told_once_each() -> None:
    """No SETTINGS came, and the first that expires ends the connection for all."""
    wire = Taken()
    wire.coming.clear()
    connection = Http2Connection(wire)
    streams = [begun(connection, total_s=5.0) for _ in range(3)]
    connection.look_after(streams[-1].deadline, 900.0)
    assert connection.ended() == streams
    assert [told(one).phase for one in streams] == [Phase.NOT_WRITTEN] * 3
    assert connection.closed


def test_held_bodies_of_a_connection_that_is_lost_meanwhile_are_told_once_each() -> None:
    class Breaking(Taken):
        broken = False

        def offer(self, data: bytes) -> int:
            if self.broken:
                raise ConnectionResetError("reset")
            return super().offer(data)

    wire = Breaking()
    wire.coming.clear()
    wire.peer = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    wire.peer.local_settings = Settings(False, {SettingCodes.INITIAL_WINDOW_SIZE: 5})
    wire.peer.initiate_connection()
    wire.coming.append(wire.peer.data_to_send())
    connection = connected(wire)
    streams = [begun(connection) for _ in range(3)]
    wire.requests()
    for stream in streams:
        wire.peer.increment_flow_control_window(100, stream.id)
    wire.coming.append(wire.peer.data_to_send())
    wire.broken = True
    connection.serve()
    assert connection.ended() == streams
    assert [told(one).phase for one in streams] == [Phase.NOT_WRITTEN] * 3


def test_a_state_that_breaks_ends_the_connection_and_its_calls_by_what_was_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wire = Taken()
    connection = connected(wire)
    first = begun(connection)
    monkeypatch.setattr(H2Connection, "send_headers", lambda *_, **__: 1 / 0)
    second = Stream(post(URL), 5.0, lambda _: None)
    known = connection.begin(second)
    assert isinstance(known, Failure)
    assert known.phase is Phase.NOT_WRITTEN
    assert told(first).phase is Phase.WRITTEN
    assert connection.ended() == [first]
    assert "http2_state_broken" in capsys.readouterr().out


def test_all_that_came_is_read_at_once() -> None:
    """Over TLS one read of the socket brings many records, and nothing tells of the later ones again."""
    wire = Taken()
    connection = connected(wire)
    stream = begun(connection)
    wire.requests()
    wire.peer.send_headers(1, [(":status", "200")])
    for number in range(500):
        wire.peer.send_data(1, b"x", end_stream=number == 499)
        wire.coming.append(wire.peer.data_to_send())
    connection.serve()
    assert isinstance(stream.result, LeanResponse)
    assert len(stream.result.content) == 500


class Narrow(PlainWire):
    """A socket's wire that takes what it is told to."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.room = 1 << 30

    def send(self, data: bytes, left_s: float) -> int:
        if not self.room:
            raise TimeoutError
        taken = super().send(data[: self.room], left_s)
        self.room -= taken
        return taken


def test_over_tls_a_byte_counts_once_the_socket_has_the_whole_of_its_record(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours, theirs = socket.socketpair()
    context = authority.server("localhost")
    read: list[bytes] = []

    def serve() -> None:
        with context.wrap_socket(theirs, server_side=True) as secured:
            while data := secured.recv(65_536):
                read.append(data)

    reading = threading.Thread(target=serve, daemon=True)
    reading.start()
    wire = Narrow(ours)
    tls = TlsWire(wire, TlsPeer(CaBundles(str(authority.file)).context(), "localhost"))
    tls.open(10.0)
    wire.room = 40
    assert tls.offer(b"x" * 100) == 0
    assert tls.offer(b"x" * 100) == 0
    wire.room = 1 << 30
    assert tls.offer(b"x" * 100) == 100
    assert tls.offer(b"y" * 20_000) == 16_384
    assert tls.offer(b"y" * 3_616) == 3_616
    tls.say_goodbye()
    ours.close()
    reading.join()
    assert b"".join(read) == b"x" * 100 + b"y" * 20_000


def test_alpn_tells_what_was_agreed_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for offered, agreed in ((["h2"], "h2"), ([], "")):
        ours, theirs = socket.socketpair()
        context = authority.server("localhost")
        if offered:
            context.set_alpn_protocols(offered)
        serving = threading.Thread(target=_handshake, args=(context, theirs), daemon=True)
        serving.start()
        tls = TlsWire(
            PlainWire(ours),
            TlsPeer(CaBundles(str(authority.file), ["h2"]).context(), "localhost"),
        )
        tls.open(10.0)
        assert tls.protocol == agreed
        ours.close()
        serving.join()


def _handshake(context: ssl.SSLContext, connection: socket.socket) -> None:
    context.wrap_socket(connection, server_side=True).close()
