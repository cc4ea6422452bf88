"""The lean transport over TLS: whom it trusts, and that a failed handshake sends nothing."""

import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from channels.channel import Failure, Phase
from channels.http_client.transport import Transport
from simulator.servers.certificates import Authority
from tests.conformance import wire as w
from tests.conformance.senders import Unwaited, post
from tests.conformance.wire import Wire


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(params=[Transport, Unwaited])
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    transport: Transport = request.param()
    yield transport
    transport.close()


def trusting(request: httpx.Request, authority: Authority) -> httpx.Request:
    request.extensions["ca_file"] = str(authority.file)
    return request


def test_an_authority_nobody_named_is_not_trusted(
    transport: Transport, authority: Authority
) -> None:
    with Wire(tls=authority.server("localhost")) as provider:
        answer = transport.send(post(provider.url))
        assert isinstance(answer, Failure)
        assert (answer.phase, answer.code) == (Phase.NOT_WRITTEN, "tls")
        assert provider.requests == 0


def test_a_certificate_for_another_host_is_not_trusted(
    transport: Transport, authority: Authority
) -> None:
    with Wire(tls=authority.server("other.example")) as provider:
        answer = transport.send(trusting(post(provider.url), authority))
        assert isinstance(answer, Failure)
        assert (answer.phase, answer.code) == (Phase.NOT_WRITTEN, "tls")
        assert provider.requests == 0


def test_an_authority_the_account_names_is_trusted_beside_the_public_ones(
    transport: Transport, authority: Authority
) -> None:
    with Wire(tls=authority.server("localhost")) as provider:
        for _ in range(2):
            answer = transport.send(trusting(post(provider.url), authority))
            assert isinstance(answer, httpx.Response)
        assert (provider.requests, provider.connections) == (2, 1)


def test_trust_of_one_account_does_not_open_the_door_for_another(
    transport: Transport, authority: Authority
) -> None:
    with Wire(tls=authority.server("localhost")) as provider:
        transport.send(trusting(post(provider.url), authority))
        assert isinstance(transport.send(post(provider.url)), Failure)
        assert provider.requests == 1


def test_a_ca_file_that_cannot_be_read_sends_nothing(transport: Transport) -> None:
    request = post("https://localhost:1/")
    request.extensions["ca_file"] = "/nowhere/ca.pem"
    answer = transport.send(request)
    assert isinstance(answer, Failure)
    assert (answer.phase, answer.code) == (Phase.NOT_WRITTEN, "tls")


def test_tls_below_1_2_is_refused(transport: Transport, authority: Authority) -> None:
    old = authority.server("localhost")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with Wire(tls=old) as provider:
        answer = transport.send(trusting(post(provider.url), authority))
        assert isinstance(answer, Failure)
        assert answer.phase is Phase.NOT_WRITTEN
        assert provider.requests == 0


def test_a_handshake_that_never_ends_sends_nothing(transport: Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        answer = transport.send(post(f"https://127.0.0.1:{silent.getsockname()[1]}/", 0.3))
    assert isinstance(answer, Failure)
    assert (answer.phase, answer.code) == (Phase.NOT_WRITTEN, "timeout")


@pytest.mark.parametrize("act", [w.close, w.reset], ids=["close", "reset"])
def test_a_request_lost_on_a_reused_tls_connection_is_not_sent_again(
    transport: Transport, authority: Authority, act: w.Script
) -> None:
    with Wire(w.ok, act, tls=authority.server("localhost")) as provider:
        transport.send(trusting(post(provider.url), authority))
        answer = transport.send(trusting(post(provider.url), authority))
        assert isinstance(answer, Failure)
        assert answer.phase is Phase.WRITTEN
        assert provider.requests == 2


def test_a_connection_made_anew_resumes_the_session(
    transport: Transport, authority: Authority
) -> None:
    """Also one of another thread's: sessions belong to the origin, not to the connection."""
    with Wire(*[w.then(w.answer("200 OK", b"{}", "Connection: close"), w.goodbye)] * 3,
              tls=authority.server("localhost")) as provider:  # fmt: skip
        for _ in range(3):
            assert isinstance(
                transport.send(trusting(post(provider.url), authority)), httpx.Response
            )
        assert (provider.connections, provider.resumed) == (3, 2)


def test_a_session_of_one_trust_is_not_resumed_under_another(
    transport: Transport, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")
    with Wire(tls=authority.server("localhost")) as provider:
        assert isinstance(transport.send(trusting(post(provider.url), authority)), httpx.Response)
        assert isinstance(transport.send(trusting(post(provider.url), stranger)), Failure)
        assert (provider.requests, provider.resumed) == (1, 0)


def test_a_connection_that_tls_ended_while_idle_is_not_used_again(
    transport: Transport, authority: Authority
) -> None:
    """The provider says goodbye and keeps the socket open: nothing but TLS tells of the end."""

    def half(wire: Wire, connection: socket.socket) -> bool:
        assert isinstance(connection, ssl.SSLSocket)
        w.ok(wire, connection)
        connection.setblocking(False)
        try:
            connection.unwrap()
        except OSError:
            pass  # the client has not answered it
        wire.stalled.set()
        return w.stall(wire, connection)

    with Wire(half, tls=authority.server("localhost")) as provider:
        for _ in range(2):
            answer = transport.send(trusting(post(provider.url), authority))
            assert isinstance(answer, httpx.Response)
            assert provider.stalled.wait(w.PATIENCE_S)
        assert (provider.requests, provider.connections) == (2, 2)


def test_connections_share_the_authorities(transport: Transport, authority: Authority) -> None:
    """Parsed for each of a hundred connections they would take fifty megabytes."""
    with Wire(tls=authority.server("localhost")) as provider:
        for _ in range(2):
            transport.send(trusting(post(provider.url), authority))
        contexts = {peer.context for peer in transport._peers.values()}
    assert len(contexts) == 1


def test_a_configured_proxy_is_asked_for_a_tunnel_to_the_providers_tls_port() -> None:
    with Wire(w.answer("403 Forbidden", b"")) as proxy:
        transport = Transport(proxy=f"http://127.0.0.1:{proxy.port}")
        answer = transport.send(post("https://provider.example/hook"))
        assert isinstance(answer, Failure)
        assert answer.phase is Phase.NOT_WRITTEN
        assert proxy.heads[0].startswith(b"CONNECT provider.example:443 ")
        transport.close()
