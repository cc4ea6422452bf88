"""What is shown of an exchange: nothing that is known to be secret, nothing under a telling name."""

import httpx
import pytest

from channels.channel import Failure, Phase
from channels.probe.probe import ShownExchange
from channels.probe.redaction import Masks, telling
from tests.channels.calls import account

SECRET = 'se+cr/et="7 x'
MASKS = Masks(account(token=SECRET), ["tok.en-1"], "+8613800000001", "+86138***0001")


def test_a_known_secret_is_masked_however_it_is_quoted() -> None:
    for form in (
        SECRET,
        "se%2Bcr%2Fet%3D%227%20x",
        "se%2Bcr%2Fet%3D%227+x",
        'se+cr/et=\\"7 x',
        "c2UrY3IvZXQ9IjcgeA==",
        "tok.en-1",
    ):
        assert MASKS.text(f"a{form}b") == "a***b"


def test_a_receiver_is_masked_with_and_without_its_countrys_code() -> None:
    for form in ("+8613800000001", "8613800000001", "%2B8613800000001", "13800000001"):
        assert MASKS.text(f"<{form}>") == "<+86138***0001>"


def test_a_short_receiver_is_masked_only_where_it_stands_alone() -> None:
    masks = Masks(account(), [], "li", "***")
    assert masks.text("li|zhang to the public, li.") == "***|zhang to the public, ***."


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "access_token",
        "X-Api-Key",
        "corpsecret",
        "sign",
        "Set-Cookie",
        "pwd",
        "x-acs-signature-nonce",
        "password",
        "assertion",
    ],
)
def test_telling_names_hide_what_nobody_knew(name: str) -> None:
    assert telling(name)
    assert MASKS.body(b'{"%s": "unknown"}' % name.encode(), "") == {name: "***"}


@pytest.mark.parametrize(
    "name",
    ["Idempotency-Key", "SignName", "sign_name", "expires_in", "token_type", "design", "text"],
)
def test_harmless_names_are_shown(name: str) -> None:
    assert not telling(name)
    assert MASKS.body(b'{"%s": "shown"}' % name.encode(), "") == {name: "shown"}


def test_the_first_word_of_an_authorization_is_left() -> None:
    request = httpx.Request(
        "POST",
        "https://h/p?a=1&sign=xyz&key=robot&to=%2B8613800000001",
        headers={"Authorization": "ACS3-HMAC-SHA256 Credential=me,Signature=beef"},
        data={"To": "+8613800000001", "Body": "hi", "token": "x"},
    )
    failure = Failure(Phase.WRITTEN, "timeout", f"after {SECRET}")
    shown = MASKS.exchange(ShownExchange("send", request, failure, 12.345))
    assert shown.url == "https://h/p?a=1&sign=***&key=***&to=+86138***0001"
    assert ("Authorization", "ACS3-HMAC-SHA256 ***") in shown.headers
    assert shown.body == [("To", "+86138***0001"), ("Body", "hi"), ("token", "***")]
    assert shown.failure == "timeout (written): after ***"
    assert shown.status is None


def test_a_push_receivers_token_is_masked_as_the_receiver() -> None:
    masks = Masks(account(), [], "device-token-1", "de***-1")
    assert masks.body(b'{"message":{"token":"device-token-1"}}', "") == {
        "message": {"token": "de***-1"}
    }


def test_a_long_text_is_cut_and_its_rest_counted() -> None:
    shown = MASKS.body(b"x" * 9_000, "text/plain")
    assert shown.endswith("… (1,000 more characters)")
    assert MASKS.body(b"", "") is None
