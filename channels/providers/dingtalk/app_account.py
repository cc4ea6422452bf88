"""A DingTalk application: the fields of an account, and its access token.

    GET  <endpoint>/gettoken?appkey=…&appsecret=…
    {"errcode": 0, "access_token": "…", "expires_in": 7200}

Source: https://open.dingtalk.com/document/orgapp/obtain-orgapp-token
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import httpx
import msgspec

from channels.channel import Account, LoginRefused, Token, TokenRefused
from channels.endpoints import with_query
from channels.http_client.request import extensions_of, fields_of
from channels.judging.foreign_json import UNREADABLE
from channels.providers.dingtalk.errors import ERRORS
from channels.providers.dingtalk.wire import address, read
from channels.secret import Secret

_GETTOKEN: Final = "gettoken"


class DingTalkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account: the application's key, secret and AgentId."""

    app_key: str
    app_secret: Secret
    agent_id: int
    confirm: bool = True
    """False: a notice is SENT as soon as its task was taken, whomever it reaches, and one that took several
    attempts cannot be recalled. For applications that may not call getsendresult."""


class _TokenGiven(msgspec.Struct):
    access_token: str
    expires_in: float


class DingTalkTokens:
    """Tokens by `gettoken`, which repeats a valid token and restarts its time."""

    def request(self, account: Account, stale: str) -> httpx.Request:
        """Returns a GET with key and secret in its query, as the provider wants."""
        options: DingTalkOptions = account.options
        url = address(account.endpoint, _GETTOKEN)
        secret = quote(options.app_secret.reveal(), safe="")
        asked = with_query(url, f"appkey={quote(options.app_key, safe='')}&appsecret={secret}")
        return httpx.Request(
            "GET", asked, headers=fields_of(url), extensions=extensions_of(account)
        )

    def read(self, answer: httpx.Response) -> Token:
        """Returns the token. Raises LoginRefused with the provider's code, TokenRefused if it may pass."""
        reply = read(answer)
        if reply is not None and reply.code != "0":
            row = ERRORS.row(reply.code)
            passing = row is not None and not row.account and row.kind != "rejected"
            refused = TokenRefused if passing else LoginRefused
            raise refused(f"{reply.code}: {reply.detail}")
        try:
            given = msgspec.json.decode(answer.content, type=_TokenGiven)
        except UNREADABLE as exc:
            raise TokenRefused(f"http_{answer.status_code}: an answer without a token") from exc
        return Token(given.access_token, given.expires_in)
