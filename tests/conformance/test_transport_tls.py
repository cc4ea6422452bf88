"""The lean transport over TLS: whom it trusts, and that a failed handshake sends nothing."""

import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from channels.channel import Failure, Phase
from channels.transport import Transport
from tests.conformance import wire as w
from tests.conformance.authority import Authority
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
        merged = Path(transport._trust.with_extra(str(authority.file))).read_text()
    assert merged.count("BEGIN CERTIFICATE") > 50


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
