"""Shared by the WeChat and WeCom APIs: errcode answers, and a token in the URL's query.

    POST <endpoint>/cgi-bin/…?access_token=TOKEN      {"errcode": 0, "errmsg": "ok", …}, HTTP 200

A refused call has its code in `errcode`, with HTTP 200. -1 ("the system is busy, try again later") is
Unknown: no page says that nothing was sent (docs/decisions/318). The provider wants the token in the URL;
these URLs are never logged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from channels.channel import Account, Answer, Call, Failure, LoginRefused, Token, TokenRefused
from channels.endpoints import below, endpoint_url
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from channels.judging.foreign_json import UNREADABLE
from channels.judging.outcomes import CONTRADICTION, for_all, of_failure, refusal
from channels.secret import Secret
from message.outcomes import AnyOutcome, Limit, Unknown

T = TypeVar("T")

_MAX_TEXT: Final = 300
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_OK: Final = range(200, 300)
_PASSING: Final = frozenset({"-1", "45009", "45011", "45033"})
"""Codes of a token request that say nothing of the login: the system is busy, too many calls."""
STABLE_TOKEN: Final = "cgi-bin/stable_token"  # noqa: S105 (a path)
ERROR_CODES: Final = (
    "https://developers.weixin.qq.com/doc/oplatform/developers/errCode/errCode.html"
)

CODES: Final = RowSource(
    ERROR_CODES,
    "2026-11-22",
    copy="WxJava's tables of it, as wx-rust-common 0.1.5 (crates.io) has them",
)
COMMON_ROWS: Final = codes.documented(
    CODES,
    codes.unknown("-1", "the system is busy"),
    codes.not_sent("40001", "the token is invalid or not the latest"),
    codes.not_sent("40014", "the token is not valid"),
    codes.rejected("40033", "the request holds a character that is not taken"),
    codes.shut_out("40164", "our IP is not in the whitelist", 10 * MINUTE),
    codes.not_sent("41001", "the token is missing"),
    codes.not_sent("42001", "the token has expired"),
    codes.not_sent("42007", "the token was revoked: a password was changed"),
    codes.rejected("43002", "the call must be a POST"),
    codes.rejected("43003", "the call must use HTTPS"),
    codes.rejected("44002", "the body is empty"),
    codes.rejected("45002", "the content is too long"),
    codes.used_up("45009", "the day's quota is used up", HOUR),
    codes.paced("45011", Limit.ACCOUNT, "the minute's quota is used up", MINUTE),
    codes.rejected("47001", "the body is no valid JSON"),
    codes.account_fault("48001", "the account may not use this API", 10 * MINUTE),
    codes.account_fault("48004", "the API is banned for this account", HOUR),
    codes.shut_out("50002", "the account is restricted or frozen", HOUR),
)
"""From `ERROR_CODES`. An account's fault is NotSent: it may be mended, or another account may send."""
TOKEN_CODES: Final = frozenset({"40001", "40014", "41001", "42001", "42007"})


class AppOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    appid: str
    secret: Secret


class WechatAnswer(msgspec.Struct):
    """The fields that every answer has."""

    errcode: int | None = None
    errmsg: str | None = ""


class _Named(msgspec.Struct):
    msgid: int | str = ""


class _Given(WechatAnswer):
    access_token: str = ""
    expires_in: float = 0.0


class WechatPrepared:
    """The parts that all requests to one path of an account share, and the URL of the latest token."""

    def __init__(self, account: Account, path: str) -> None:
        self.account = account
        self._url = below(endpoint_url(account.endpoint), path)
        self._fields = fields_of(self._url)
        self._extensions = extensions_of(account)
        self._latest = ("", self._url)  # `post` replaces the whole pair; a race builds a URL twice

    def post(self, query: Mapping[str, str], body: bytes) -> httpx.Request:
        """Returns a POST of JSON; `query` follows the endpoint's own query."""
        text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        latest, url = self._latest
        if text != latest:
            url = with_query(self._url, text)
            self._latest = (text, url)
        return post_json(url, self._fields, body, dict(self._extensions))

    def get(self, query: Mapping[str, str]) -> httpx.Request:
        """Returns a GET, for token requests."""
        text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        url = with_query(self._url, text)
        return httpx.Request("GET", url, headers=self._fields, extensions=dict(self._extensions))


class PreparedAccounts:
    """Prepared parts, kept per account. Thread-safe: `of` stores each entry whole."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._prepared: dict[str, WechatPrepared] = {}

    def of(self, account: Account) -> WechatPrepared:
        """Returns the prepared parts of an equal account: each lane has an object of its own."""
        prepared = self._prepared.get(account.name)
        if prepared is None or prepared.account != account:
            prepared = self._prepared[account.name] = WechatPrepared(account, self._path)
        return prepared


class StableToken:
    """Tokens of Official Accounts and mini-programs: `stable_token`, never with force_refresh.

    The provider repeats a valid token. In its last five minutes it gives a new one, and the old one stays
    valid. So no process voids another's token, as force_refresh would.
    Source: https://developers.weixin.qq.com/doc/service/api/base/api_getstableaccesstoken.html
    """

    def request(self, account: Account, stale: str) -> httpx.Request:
        options: AppOptions = account.options
        body = {
            "grant_type": "client_credential",
            "appid": options.appid,
            "secret": options.secret.reveal(),
            "force_refresh": False,
        }
        return WechatPrepared(account, STABLE_TOKEN).post({}, msgspec.json.encode(body))

    def read(self, answer: httpx.Response) -> Token:
        return given_token(answer)


def given_token(answer: httpx.Response) -> Token:
    """Returns the token in an answer. Raises LoginRefused with the provider's code and words; TokenRefused
    for a code that passes or a foreign answer."""
    if answer.status_code not in _OK:
        raise TokenRefused(f"http_{answer.status_code}")
    given = decoded(answer, _Given)
    if given is None:
        raise TokenRefused("an answer that is not theirs")
    if given.errcode:
        refused = TokenRefused if str(given.errcode) in _PASSING else LoginRefused
        raise refused(f"{given.errcode} {_words(given)}".strip())
    if not given.access_token or given.expires_in <= 0:
        raise TokenRefused(f"no token {_words(given)}".strip())
    return Token(given.access_token, given.expires_in)


def with_query(url: httpx.URL, text: str) -> httpx.URL:
    """Returns the URL with `text`, quoted already, appended to its query."""
    if not text:
        return url
    mark = b"&" if b"?" in url.raw_path else b"?"
    return url.copy_with(raw_path=url.raw_path + mark + text.encode("ascii"))


def decoded(answer: httpx.Response, kind: type[T]) -> T | None:
    """Returns the answer as a struct; None if it cannot be read."""
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except UNREADABLE:
        return None


def code_of(answer: httpx.Response) -> str:
    """Returns the errcode of an answer with a 2xx; empty if it has none."""
    found = decoded(answer, WechatAnswer) if answer.status_code in _OK else None
    return "" if found is None or found.errcode is None else str(found.errcode)


def words_of(answer: httpx.Response) -> str:
    """Returns the provider's words in an answer; empty if it has none."""
    found = decoded(answer, WechatAnswer)
    return "" if found is None else _words(found)


def failed(call: Call, answer: Answer, errors: ErrorTable) -> list[AnyOutcome] | None:
    """Returns the outcomes of a call that failed as a whole; None if the answer has errcode 0."""
    if isinstance(answer, Failure):
        return for_all(call, of_failure(answer))
    found = decoded(answer, WechatAnswer)
    refused = refusal(answer)
    if refused is not None:
        accepted = found is not None and found.errcode == 0
        return for_all(call, CONTRADICTION if accepted else refused)
    if found is None or found.errcode is None:
        return for_all(call, Unknown("malformed", "the answer has no errcode"))
    if found.errcode:
        return for_all(call, errors.outcome(str(found.errcode), _words(found)))
    return None


def holds_control(value: Any) -> bool:
    """Returns whether a text or a name in a JSON value has a control character, but for tab and line ends.
    JSON writes most of them as \\uXXXX, which WeChat and WeCom refuse (40033)."""
    if isinstance(value, str):
        return _CONTROL.search(value) is not None
    if isinstance(value, dict):
        return any(holds_control(k) or holds_control(v) for k, v in value.items())
    return isinstance(value, list) and any(holds_control(one) for one in value)


def message_id(call: Call, answer: Answer) -> str:
    """Returns the provider's id of the accepted message, else the call's key."""
    found = decoded(answer, _Named) if isinstance(answer, httpx.Response) else None
    name = str(found.msgid) if found is not None else ""
    return name if 0 < len(name) <= _MAX_TEXT and name.isprintable() else call.key


def _words(answered: WechatAnswer) -> str:
    """Returns the provider's words in one line, cut to `_MAX_TEXT`."""
    return " ".join((answered.errmsg or "").split())[:_MAX_TEXT]
