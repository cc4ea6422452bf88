"""The simulator over HTTP/2, judged by httpcore's client and by the bytes on the wire."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes

from simulator import Faults, Simulator, spawn
from simulator.servers.certificates import Authority

PATIENCE_S = 10.0


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path, fsync=False) as started:
        yield started


class Client:
    """A connection without any policy: what comes is kept as `h2` tells it."""

    def __init__(self, url: str) -> None:
        of = httpx.URL(url)
        self.host = f"{of.host}:{of.port}"
        self._socket = socket.create_connection((of.host, of.port or 0), timeout=PATIENCE_S)
        self.state = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.state.initiate_connection()
        self.events: list[Event] = []

    def ask(self, path: str = "/hook", key: str = "k") -> int:
        """One message by the webhook protocol; the stream's id."""
        stream = self.state.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "http"), (":authority", self.host)]
        self.state.send_headers(stream, [*head, (":path", path), ("idempotency-key", key)])
        self.state.send_data(stream, b'{"id":"m","receiver":"u"}', end_stream=True)
        return stream

    def until(self, kind: type[Event]) -> Event | None:
        """The first such event; None: the connection has ended."""
        while True:
            found = next((one for one in self.events if isinstance(one, kind)), None)
            if found is not None:
                return found
            self._socket.sendall(self.state.data_to_send())
            data = self._socket.recv(65_536)
            if not data:
                return None
            self.events += self.state.receive_data(data)

    def ended(self) -> bool:
        self._socket.settimeout(PATIENCE_S)
        return not self._socket.recv(65_536)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def client(provider: Simulator) -> Iterator[Client]:
    made = Client(provider.url)
    yield made
    made.close()


def test_another_client_is_served_by_prior_knowledge(provider: Simulator) -> None:
    with httpx.Client(http1=False, http2=True, trust_env=False) as foreign:
        for number in range(3):
            answer = foreign.post(
                f"{provider.url}/hook",
                json={"id": "m", "receiver": "u"},
                headers={"Idempotency-Key": f"k{number}"},
            )
            assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
            assert answer.json() == {"id": f"sim-{number + 1}"}
    assert provider.report().summary.accepted == 3


def test_another_client_is_served_by_alpn_and_http1_beside_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(cafile=str(authority.file))
    with spawn(tmp_path, certificate=str(authority.certificate("127.0.0.1"))) as provider:
        said = []
        for modern in (True, False):
            with httpx.Client(http2=modern, verify=trust, trust_env=False) as foreign:
                said.append(foreign.get(f"{provider.url}/hook/k").http_version)
    assert said == ["HTTP/2", "HTTP/1.1"]


def test_many_requests_at_once_have_an_answer_each(provider: Simulator) -> None:
    provider.control(rules=[Faults(latency_ms="1-30")])

    async def send_all() -> list[int]:
        """By one thread: several mix up the order of httpcore's streams."""
        async with httpx.AsyncClient(
            http1=False, http2=True, trust_env=False, timeout=30.0
        ) as foreign:
            hook, body = f"{provider.url}/hook", {"id": "m", "receiver": "u"}
            calls = [
                foreign.post(hook, json=body, headers={"Idempotency-Key": f"k{number}"})
                for number in range(30)
            ]
            return [answer.status_code for answer in await asyncio.gather(*calls)]

    told = asyncio.run(send_all())
    assert told == [200] * 30
    assert provider.report().summary.accepted_keys == 30


def test_a_connection_allows_one_stream_until_an_answer_was_good(client: Client) -> None:
    first = client.until(RemoteSettingsChanged)
    assert isinstance(first, RemoteSettingsChanged)
    settings = [first.changed_settings[SettingCodes.MAX_CONCURRENT_STREAMS].new_value]
    client.ask()
    assert client.until(StreamEnded)
    settings += [
        one.changed_settings[SettingCodes.MAX_CONCURRENT_STREAMS].new_value
        for one in client.events[1:]
        if isinstance(one, RemoteSettingsChanged)
    ] or [client.state.remote_settings.max_concurrent_streams]
    assert settings == [1, 1_000]


@pytest.mark.parametrize(
    ("faults", "code", "accepted"),
    [
        (Faults(reset=1.0), 2, 1),
        (Faults(close=1.0), 8, 1),
        (Faults(drop=1.0), 8, 0),
    ],
    ids=["reset", "close", "drop"],
)
def test_a_fault_of_one_call_ends_its_stream_and_no_other(
    provider: Simulator, client: Client, faults: Faults, code: int, accepted: int
) -> None:
    provider.control(rules=[faults])
    client.ask(key="a")
    ended = client.until(StreamReset)
    assert isinstance(ended, StreamReset)
    assert ended.error_code == code
    provider.control(rules=[])
    client.events.clear()
    client.ask(key="b")
    answered = client.until(ResponseReceived)
    assert isinstance(answered, ResponseReceived)
    told = {str(name): str(value) for name, value in answered.headers or ()}
    assert told[":status"] == "200"
    assert provider.report().summary.accepted == accepted + 1


def test_the_last_answer_of_a_connection_is_followed_by_goaway(tmp_path: Path) -> None:
    with spawn(tmp_path, fsync=False, close_after=2) as provider:
        client = Client(provider.url)
        client.ask(key="a")
        assert client.until(StreamEnded)
        client.events.clear()
        last = client.ask(key="b")
        gone = client.until(ConnectionTerminated)
        assert isinstance(gone, ConnectionTerminated)
        assert (gone.last_stream_id, gone.error_code) == (last, 0)
        assert gone.additional_data == b'{"reason":"Shutdown"}'
        assert client.ended()
        client.close()


def test_an_idle_connection_is_told_to_go_and_closed(tmp_path: Path) -> None:
    with spawn(tmp_path, fsync=False, idle_close_ms=50) as provider:
        client = Client(provider.url)
        client.ask()
        assert client.until(ConnectionTerminated)
        assert client.ended()
        client.close()


def test_a_frame_that_breaks_the_protocol_ends_the_connection(provider: Simulator) -> None:
    url = httpx.URL(provider.url)
    with socket.create_connection((url.host, url.port or 0), timeout=PATIENCE_S) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\1\0\0\0\0\0\0x")
        said = b""
        while piece := connection.recv(65_536):  # a connection that stays open ends in a timeout
            said += piece
    reader = H2Connection(H2Configuration(client_side=True))
    reader.initiate_connection()
    ended = [one for one in reader.receive_data(said) if isinstance(one, ConnectionTerminated)]
    assert [one.error_code for one in ended] == [ErrorCodes.PROTOCOL_ERROR]
