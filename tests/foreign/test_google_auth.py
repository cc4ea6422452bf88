"""Google's own library (package `google-auth`, 2.62) judges the signed assertion for an FCM token.

It also logs in at our simulator and sends there with the token: its two requests are those of our adapter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from google.auth import jwt as google_jwt
from google.auth.exceptions import GoogleAuthError, RefreshError
from google.auth.transport import requests as google_requests
from google.oauth2 import service_account

from channels.channel import Call, LoginRefused
from channels.providers.fcm.adapter import FcmChannel
from channels.providers.fcm.token_source import FcmTokens
from channels.registry import load_accounts
from message.outcomes import Accepted
from simulator import Simulator
from tests.channels.providers.chats import account_of, deliveries
from tests.conformance.samples.fcm import ACCOUNT, PRIVATE_KEY
from tests.foreign.sdk_wire import Made, led, of_httpx
from tests.harness.simulators import spawn

jwt: Any = google_jwt  # has no types
transport: Any = google_requests
credentials: Any = service_account.Credentials
TOKEN_URI = "https://oauth2.googleapis.com/token"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
EMAIL = "sender@goose.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, 2_048)


def assertion(key: rsa.RSAPrivateKey, now_s: float) -> str:
    """The one that our request for a token carries."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    table = {
        "provider": "fcm",
        "project_id": "goose",
        "client_email": EMAIL,
        "private_key": pem,
        "private_key_id": "k1",
    }
    account = load_accounts({"main": table})["main"]
    request = FcmTokens(now=lambda: now_s).request(account, "")
    assert str(request.url) == TOKEN_URI
    form = parse_qs(request.read().decode())
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    return form["assertion"][0]


def public(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_google_verifies_our_assertion_and_finds_its_own_claims(key: rsa.RSAPrivateKey) -> None:
    now_s = datetime.now(UTC).timestamp()
    made = assertion(key, now_s)
    claims = jwt.decode(made, certs=public(key), audience=TOKEN_URI)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    info: dict[str, Any] = {
        "type": "service_account",
        "client_email": EMAIL,
        "private_key": pem,
        "private_key_id": "k1",
        "token_uri": TOKEN_URI,
    }
    theirs = credentials.from_service_account_info(info, scopes=[SCOPE])
    own = jwt.decode(theirs._make_authorization_grant_assertion(), certs=public(key))
    assert {name: claims[name] for name in ("iss", "aud", "scope")} == {
        name: own[name] for name in ("iss", "aud", "scope")
    }
    assert claims["exp"] - claims["iat"] == own["exp"] - own["iat"]
    header, ours = (
        json.loads(json.dumps(jwt.decode_header(one)))
        for one in (theirs._make_authorization_grant_assertion(), made)
    )
    assert header == ours


def test_google_refuses_it_with_another_key_or_an_hour_later(key: rsa.RSAPrivateKey) -> None:
    now_s = datetime.now(UTC).timestamp()
    other = rsa.generate_private_key(65_537, 2_048)
    with pytest.raises((ValueError, GoogleAuthError)):
        jwt.decode(assertion(key, now_s), certs=public(other))
    with pytest.raises((ValueError, GoogleAuthError)):
        jwt.decode(assertion(key, now_s - 7_200), certs=public(key))


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("fcm"), fsync=False) as started:
        yield started


@pytest.fixture
def theirs(simulator: Simulator) -> Iterator[list[Made]]:
    """Yields the requests of Google's library."""
    simulator.control(rules=[])
    at = f"{simulator.url}/fcm/"
    with led({"https://oauth2.googleapis.com/": at, "https://fcm.googleapis.com/": at}) as kept:
        yield kept


def login(private_key: str = PRIVATE_KEY) -> Any:
    """The library's credentials, of the account that the simulator knows."""
    info = {**ACCOUNT, "private_key": private_key, "token_uri": TOKEN_URI}
    return credentials.from_service_account_info(info, scopes=[SCOPE])


def test_google_logs_in_at_the_simulator_and_sends_as_our_adapter_does(theirs: list[Made]) -> None:
    account = account_of(ACCOUNT, FcmChannel.endpoint)
    made = deliveries("push", ["token-1"], {"title": "订单", "text": "已发货"})
    session: Any = transport.AuthorizedSession(login())
    send = of_httpx(FcmChannel().request(Call(account, made, "t")))
    answer = session.post(send.address, json=send.json)
    assert (answer.status_code, "name" in answer.json()) == (200, True)
    asked, sent = theirs
    token = of_httpx(FcmTokens().request(account, ""))
    assert token.named == asked.named
    assert token.fields["Content-Type"] == asked.fields["Content-Type"]
    ours, its = (parse_qs(one.body.decode()) for one in (token, asked))
    assert ours.keys() == its.keys()
    assert ours["grant_type"] == its["grant_type"]
    given = FcmTokens().read(asked.answer)
    assert given.text == session.credentials.token
    mine = of_httpx(FcmChannel().request(Call(account, made, given.text)))
    assert mine.named == sent.named
    assert mine.fields["Authorization"] == sent.fields["authorization"]
    assert FcmChannel().outcomes(Call(account, made), sent.answer) == [
        Accepted(answer.json()["name"])
    ]


def test_google_is_refused_with_another_key_by_the_error_that_our_adapter_reads(
    theirs: list[Made], key: rsa.RSAPrivateKey
) -> None:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    with pytest.raises(RefreshError, match="invalid_grant"):
        login(pem).refresh(transport.Request())
    with pytest.raises(LoginRefused, match=r"^invalid_grant: "):
        FcmTokens().read(theirs[-1].answer)
