"""Every row of the conformance suite, over both ways to carry a call, whichever is the default."""

from collections.abc import Callable, Iterator

import pytest

from channels.transport import Transport
from tests.conformance import test_transport as plain
from tests.conformance import test_transport_tls as tls
from tests.conformance.authority import Authority
from tests.conformance.wire import Script, close, reset

authority = tls.authority


@pytest.fixture(params=[True, False], ids=["sockets", "libcurl"])
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    transport = Transport(sockets=request.param)
    yield transport
    transport.close()


@pytest.mark.parametrize("row", plain.ROWS, ids=lambda row: row.name)
def test_outcome_agrees_with_what_the_provider_read(transport: Transport, row: plain.Row) -> None:
    plain.test_outcome_agrees_with_what_the_provider_read(transport, row)


@pytest.mark.parametrize(
    "check",
    [
        plain.test_a_large_body_is_sent_once_and_without_expect,
        plain.test_a_large_body_cut_short_by_the_provider_is_not_sent_again,
        plain.test_a_request_cut_short_is_no_request,
        plain.test_a_refused_connection_sends_nothing,
        plain.test_an_unknown_name_sends_nothing,
        plain.test_a_connection_nobody_accepts_sends_nothing,
        plain.test_another_scheme_sends_nothing,
        tls.test_a_ca_file_that_cannot_be_read_sends_nothing,
        tls.test_a_handshake_that_never_ends_sends_nothing,
    ],
)
def test_check_of_the_suite_holds(transport: Transport, check: Callable[[Transport], None]) -> None:
    check(transport)


@pytest.mark.parametrize(
    "check",
    [
        tls.test_an_authority_nobody_named_is_not_trusted,
        tls.test_a_certificate_for_another_host_is_not_trusted,
        tls.test_an_authority_the_account_names_is_trusted_beside_the_public_ones,
        tls.test_trust_of_one_account_does_not_open_the_door_for_another,
        tls.test_tls_below_1_2_is_refused,
    ],
)
def test_tls_check_of_the_suite_holds(
    transport: Transport, authority: Authority, check: Callable[[Transport, Authority], None]
) -> None:
    check(transport, authority)


@pytest.mark.parametrize("act", [close, reset], ids=["close", "reset"])
def test_request_lost_on_a_reused_tls_connection_is_not_sent_again(
    transport: Transport, authority: Authority, act: Script
) -> None:
    tls.test_a_request_lost_on_a_reused_tls_connection_is_not_sent_again(transport, authority, act)
