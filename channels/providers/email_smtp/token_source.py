"""Access tokens for mail accounts that log in by XOAUTH2 (RFC 6749).

    POST <token_url>                                   application/x-www-form-urlencoded
    grant_type=refresh_token&refresh_token=…&client_id=…[&client_secret=…][&scope=…]
    grant_type=client_credentials&client_id=…&client_secret=…[&scope=…]
    {"access_token": "…", "expires_in": 3599, "token_type": "Bearer"}
    {"error": "invalid_grant", "error_description": "…"}                                 status 400 or 401

An account with a `refresh_token` uses the first grant (Google, a person's mailbox). Others use the second
(Microsoft 365, an application that may send as the mailbox). A new refresh token in the answer is not kept:
if a provider changes it at each use, the account needs the second grant.

Sources, read 2026-11-22: https://www.rfc-editor.org/rfc/rfc6749 (§4.4, §5, §6),
https://developers.google.com/workspace/gmail/imap/xoauth2-protocol,
https://learn.microsoft.com/en-us/exchange/client-developer/legacy-protocols/how-to-authenticate-an-imap-pop-smtp-application-by-using-oauth
"""

from __future__ import annotations

from typing import Any, Final, Protocol
from urllib.parse import urlencode

import httpx
import msgspec

from channels.channel import Account, LoginRefused, OptionalTokens, Token, TokenRefused
from channels.endpoints import endpoint_url
from channels.http_client.request import extensions_of
from channels.judging.foreign_json import UNREADABLE
from channels.secret import Secret

_LIFE_S: Final = 300.0
"""Life of a token whose answer has no expires_in; RFC 6749 §5.1 only recommends it."""
_OF_LOGIN: Final = frozenset(
    {
        *("invalid_client", "invalid_grant", "invalid_request", "invalid_scope"),
        *("unauthorized_client", "unsupported_grant_type", "access_denied"),
    }
)
"""Errors of the login (RFC 6749 §5.2): they repeat until somebody mends the account."""
_MAX_DETAIL: Final = 200


class TokenOptions(Protocol):
    """The options of an account that token requests use."""

    @property
    def token_url(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_secret(self) -> Secret | None: ...
    @property
    def refresh_token(self) -> Secret | None: ...
    @property
    def scope(self) -> str: ...


class _Answered(msgspec.Struct):
    access_token: str = ""
    expires_in: Any = 0
    error: str = ""
    error_description: str = ""


class SmtpTokens(OptionalTokens):
    """Stateless."""

    def wanted(self, account: Account) -> bool:
        """Returns whether the account has a `token_url`."""
        return bool(account.options.token_url)

    def request(self, account: Account, stale: str) -> httpx.Request:
        """Returns a request by refresh token, else by client credentials."""
        return httpx.Request(
            "POST",
            endpoint_url(account.options.token_url),
            headers={
                "User-Agent": "hongyan",
                "Content-Type": "application/x-www-form-urlencoded",
            },
            content=urlencode(_form(account.options)).encode(),
            extensions=extensions_of(account),
        )

    def read(self, answer: httpx.Response) -> Token:
        """Returns the token. Raises LoginRefused with the provider's error, TokenRefused if it may pass."""
        try:
            reply = msgspec.json.decode(answer.content, type=_Answered)
        except UNREADABLE as exc:
            raise TokenRefused(f"http_{answer.status_code}: an answer without a token") from exc
        if reply.access_token and answer.is_success and not reply.error:
            return Token(reply.access_token, _seconds(reply.expires_in))
        code = reply.error or f"http_{answer.status_code}"
        text = f"{code}: {reply.error_description[:_MAX_DETAIL]}"
        raise LoginRefused(text) if reply.error in _OF_LOGIN else TokenRefused(text)


def _form(options: TokenOptions) -> dict[str, str]:
    refresh, secret = options.refresh_token, options.client_secret
    form = {"grant_type": "refresh_token" if refresh else "client_credentials"}
    if refresh:
        form["refresh_token"] = refresh.reveal()
    form["client_id"] = options.client_id
    if secret:
        form["client_secret"] = secret.reveal()
    if options.scope:
        form["scope"] = options.scope
    return form


def _seconds(written: object) -> float:
    """Returns expires_in, which some providers write as a text; a default if it is no positive number."""
    try:
        seconds = float(written) if isinstance(written, int | float | str) else 0.0
    except ValueError:
        seconds = 0.0
    return seconds if 0 < seconds < float("inf") else _LIFE_S
