"""An application of DingTalk's: what an account of it says, and its access token.

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
    """What an account must say: the application's key and secret, and its AgentId."""

    app_key: str
    app_secret: Secret
    agent_id: int
    confirm: bool = True
    """False: a notice is SENT as soon as its task was taken, whomever it reaches. For applications that may
    not call getsendresult."""


class _TokenGiven(msgspec.Struct):
    access_token: str
    expires_in: float


class DingTalkTokens:
    """`gettoken`; asked again it gives the same token, with its time begun anew."""

    def request(self, account: Account, stale: str) -> httpx.Request:
        """Key and secret stand in the query, where the provider wants them."""
        options: DingTalkOptions = account.options
        url = address(account.endpoint, _GETTOKEN)
        secret = quote(options.app_secret.reveal(), safe="")
        asked = with_query(url, f"appkey={quote(options.app_key, safe='')}&appsecret={secret}")
        return httpx.Request(
            "GET", asked, headers=fields_of(url), extensions=extensions_of(account)
        )

    def read(self, answer: httpx.Response) -> Token:
        """The token; raises LoginRefused with the provider's code, TokenRefused for one that passes."""
        said = read(answer)
        if said is not None and said.code != "0":
            row = ERRORS.row(said.code)
            passing = row is not None and not row.account and row.kind != "rejected"
            refused = TokenRefused if passing else LoginRefused
            raise refused(f"{said.code}: {said.detail}")
        try:
            given = msgspec.json.decode(answer.content, type=_TokenGiven)
        except UNREADABLE as exc:
            raise TokenRefused(f"http_{answer.status_code}: an answer without a token") from exc
        return Token(given.access_token, given.expires_in)
