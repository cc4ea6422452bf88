"""Mail accounts that log in by access token: how one is asked for, shown and renewed."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from channels.channel import Account, Failure, LoginRefused, TokenRefused, TokenSource
from channels.engine import Engine
from channels.providers.email_smtp.adapter import CHANNELS
from channels.registry import AccountError, load_accounts
from channels.smtp_client.mail_request import (
    Envelope,
    SmtpReply,
    SmtpReplySet,
    SmtpStage,
    written_told,
)
from channels.tokens.contract import TokenLife
from message.outcomes import Accepted, AnyOutcome, NotSent
from tests.channels.providers.test_smtp import call

CHANNEL = CHANNELS[0]
GOOGLE: dict[str, Any] = {
    "provider": "smtp",
    "endpoint": "smtp://smtp.gmail.com",
    "sender": "no-reply@example.com",
    "user": "no-reply@example.com",
    "token_url": "https://oauth2.googleapis.com/token",
    "client_id": "client-1",
    "client_secret": "the-secret",
    "refresh_token": "1//refresh",
}


def account(**changes: Any) -> Account:
    table = {key: value for key, value in {**GOOGLE, **changes}.items() if value is not None}
    return load_accounts({"mail": table})["mail"]


def source() -> TokenSource:
    found = CHANNEL.optional_tokens
    assert found is not None
    return found


def form(of: Account) -> dict[str, str]:
    request = source().request(of, "")
    assert isinstance(request, httpx.Request)
    assert (request.method, str(request.url)) == ("POST", GOOGLE["token_url"])
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    return {name: values[0] for name, values in parse_qs(request.read().decode()).items()}


def test_a_refresh_token_is_exchanged() -> None:
    assert form(account()) == {
        "grant_type": "refresh_token",
        "refresh_token": "1//refresh",
        "client_id": "client-1",
        "client_secret": "the-secret",
    }


def test_without_one_the_applications_own_credentials_are() -> None:
    scope = "https://outlook.office365.com/.default"
    assert form(account(refresh_token=None, scope=scope)) == {
        "grant_type": "client_credentials",
        "client_id": "client-1",
        "client_secret": "the-secret",
        "scope": scope,
    }


@pytest.mark.parametrize(
    ("written", "seconds"), [(3_599, 3_599.0), ("3599", 3_599.0), (None, 300.0)]
)
def test_a_token_lives_as_long_as_the_answer_says(written: object, seconds: float) -> None:
    said = {"access_token": "ya29.a", "expires_in": written, "token_type": "Bearer"}
    token = source().read(httpx.Response(200, json=said))
    assert (token.text, token.expires_in_s) == ("ya29.a", seconds)


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (400, {"error": "invalid_grant", "error_description": "revoked"}, LoginRefused),
        (401, {"error": "invalid_client"}, LoginRefused),
        (503, {"error": "temporarily_unavailable"}, TokenRefused),
        (200, {}, TokenRefused),
        (502, "<html>", TokenRefused),
    ],
)
def test_only_what_is_about_the_login_refuses_it(
    status: int, content: object, kind: type[TokenRefused]
) -> None:
    body = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(TokenRefused) as refused:
        source().read(httpx.Response(status, text=body))
    assert type(refused.value) is kind


@pytest.mark.parametrize(
    "changes",
    [
        {"password": "x"},
        {"user": None},
        {"client_id": None},
        {"client_secret": None, "refresh_token": None},
        {"token_url": None},
        {"token_url": "nowhere"},
    ],
)
def test_an_account_that_cannot_work_is_told_at_start(changes: dict[str, Any]) -> None:
    with pytest.raises(AccountError) as told:
        account(**changes)
    assert "the-secret" not in str(told.value)


class TokenServer:
    """A mail server that takes one token, and the transport to it."""

    def __init__(self, good: str) -> None:
        self.good = good
        self.shown: list[str] = []

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        envelope: Envelope = request.extensions["smtp"]
        assert envelope.login is not None
        assert envelope.login.by_token
        self.shown.append(envelope.login.password.reveal())
        if self.shown[-1] == self.good:
            told = SmtpReplySet(SmtpStage.FINAL, SmtpReply(250, "queued"), [SmtpReply(250)])
        else:
            told = SmtpReplySet(SmtpStage.AUTH, SmtpReply(535, "5.7.8 not accepted"), by_token=True)
        return httpx.Response(told.reply.code, content=written_told(told))


class Given:
    """Tokens by turns."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.stale: list[str] = []

    def get(self, account: Account, source: TokenSource) -> str:
        return self._texts[0]

    def held(self, account: Account, source: TokenSource) -> str | None:
        return self._texts[0]

    def renew(self, account: Account, source: TokenSource, stale: str) -> str:
        self.stale.append(stale)
        return self._texts[-1]

    def refused_logins(self) -> list[str]:
        return []

    def lives(self) -> dict[str, TokenLife]:
        return {}


def sent(tokens: Given, server: TokenServer) -> AnyOutcome:
    (outcome,) = Engine(server, tokens).send(CHANNEL, call(to_account=account()), 5.0)
    return outcome


def test_a_token_that_the_server_refuses_is_renewed_and_the_mail_goes_once() -> None:
    tokens, server = Given("old", "new"), TokenServer("new")
    assert isinstance(sent(tokens, server), Accepted)
    assert (server.shown, tokens.stale) == (["old", "new"], ["old"])


def test_a_second_refusal_halts_the_account() -> None:
    found = sent(Given("old", "new"), TokenServer("another"))
    assert isinstance(found, NotSent)
    assert (found.code, found.account) == ("token_refused", True)


def test_a_password_that_is_refused_asks_for_no_token() -> None:
    class Plain:
        def send(self, request: httpx.Request) -> httpx.Response:
            envelope: Envelope = request.extensions["smtp"]
            assert envelope.login is not None
            assert not envelope.login.by_token
            told = SmtpReplySet(SmtpStage.AUTH, SmtpReply(535, "wrong"))
            return httpx.Response(535, content=written_told(told))

    tokens = Given("never")
    (found,) = Engine(Plain(), tokens).send(CHANNEL, call(), 5.0)
    assert isinstance(found, NotSent)
    assert (found.code, tokens.stale) == ("535", [])
