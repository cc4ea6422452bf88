"""Google's own library (package `google-auth`, 2.62) judges the signed assertion for an FCM token."""

from __future__ import annotations

import json
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
from google.auth.exceptions import GoogleAuthError
from google.oauth2 import service_account

from channels.providers._fcm_token import FcmTokens
from channels.registry import load_accounts

jwt: Any = google_jwt  # has no types
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
