"""GeTui push (个推), REST v2: one device a call. Phones in mainland China, which FCM does not reach.

    POST <endpoint>/<app_id>/auth                {"sign", "timestamp", "appkey"}
    {"code": 0, "msg": "success", "data": {"expire_time": "1589861213426", "token": "…"}}

    POST <endpoint>/<app_id>/push/single/cid     token: …
    {"request_id": "…", "settings": {"ttl": …}, "audience": {"cid": ["…"]}, "push_message": {…}}
    {"code": 0, "msg": "", "data": {"<task id>": {"<cid>": "successed_online"}}}

    sign = hex SHA-256 of app key, timestamp (ms) and master secret        ±10 minutes

A receiver is a CID, or `alias:` and a name that the application bound. `content`:
channels/providers/getui/content.py. GeTui accepted a CID with the status `successed_online` or
`successed_offline`. `successed_ignore` was not sent, since the device was not seen for 90 days.

`request_id` has 10 to 32 characters, and "if it is repeated, the message is lost". The period and the
answer to a repeat are not documented. So it gives no dedup, and each attempt has its own. There is no
query. The receipt shows what arrived (receipts/parsers/getui.py).

Sources, read 2026-11-22: https://docs.getui.com/getui/server/rest_v2/push,
https://docs.getui.com/getui/server/rest_v2/code, and of GeTui's own SDK
https://github.com/GetuiLaboratory/getui-pushapi-java-client-v2: core/client/DefaultApiClient.java (10001),
dto/req/message/PushDTO.java (request_id)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from time import time
from typing import Any, ClassVar, Final

import httpx
import msgspec

from channels.accounts.reach import wrong_receiver
from channels.bad_content import UNSENDABLE, reason_of
from channels.base import ClockedChannel
from channels.capabilities import Capabilities
from channels.channel import (
    Account,
    Answer,
    Call,
    Failure,
    LoginRefused,
    Token,
    TokenRefused,
    TokenSource,
)
from channels.endpoints import below, endpoint_url
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import CONTRADICTION, for_all, of_failure, refusal
from channels.providers._common import sms as _sms
from channels.providers.getui.content import PROVIDER, message, read
from channels.secret import Secret
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, Rejected, Unknown

_ALIAS: Final = "alias:"
_CID: Final = re.compile(r"[0-9a-zA-Z]{16,64}")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,40}")
_TOKEN_CODE: Final = "10001"  # noqa: S105 (a code)
_TAKEN: Final = frozenset({"successed_online", "successed_offline"})
_IGNORED: Final = "successed_ignore"
_MAX_DETAIL: Final = 200
_MS: Final = 1_000
_NAMED: Final = 28
"""Characters of the call's key in a request_id; four more are the number of the attempt."""
_LOGIN_CODES: Final = range(10_000, 40_000)
_PASSING: Final = frozenset({10_003, 10_005})

_CODES: Final = RowSource("https://docs.getui.com/getui/server/rest_v2/code", "2026-11-22")
_PUSH: Final = RowSource("https://docs.getui.com/getui/server/rest_v2/push", "2026-11-22")

_ERRORS: Final = ErrorTable(
    codes.documented(
        _CODES,
        codes.rejected("1", "the body cannot be read"),
        codes.not_sent("2", "the service is starting", MINUTE),
        codes.shut_out("301", "the address is of another data centre than the application", HOUR),
        codes.account_fault("404", "no such address", HOUR),
        codes.account_fault("405", "the address takes no POST", HOUR),
        codes.account_fault(_TOKEN_CODE, "the token is wrong or expired"),
        codes.shut_out("10002", "application or address is on the block list", HOUR),
        codes.paced("10003", Limit.ACCOUNT, "too many logins a minute", MINUTE),
        codes.paced("10005", Limit.ACCOUNT, "too many calls a minute", MINUTE),
        codes.rejected("20001", "a parameter or the CID is not valid"),
        codes.account_fault("30*", "the account's package does not cover it", HOUR),
    ),
    codes.documented(_PUSH, codes.rejected(_IGNORED, "the device was not seen for 90 days")),
)


class GetuiOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    app_id: _sms.Name
    app_key: _sms.Name
    master_secret: Secret


class _Answered(msgspec.Struct):
    code: int
    msg: str = ""
    data: Any = None


_decoder = msgspec.json.Decoder(_Answered)


class GetuiTokens:
    """Stateless but for a clock. A token lives for a day."""

    def __init__(self, now: Callable[[], float] = time) -> None:
        self._now = now

    def request(self, account: Account, stale: str) -> httpx.Request:
        """Returns a request for a token, signed with the current time."""
        options: GetuiOptions = account.options
        timestamp = str(int(self._now() * _MS))
        text = f"{options.app_key}{timestamp}{options.master_secret.reveal()}"
        sign = sha256(text.encode()).hexdigest()
        body = {"sign": sign, "timestamp": timestamp, "appkey": options.app_key}
        url = _address(account.endpoint, options.app_id, "auth")
        return post_json(url, fields_of(url), msgspec.json.encode(body), extensions_of(account))

    def read(self, answer: httpx.Response) -> Token:
        """Returns the token. Raises LoginRefused with GeTui's code, TokenRefused if it may pass."""
        reply = _read(answer)
        if reply is None:
            raise TokenRefused(f"http_{answer.status_code}: an answer without a token")
        data = reply.data if isinstance(reply.data, dict) else {}
        text, ends = data.get("token"), str(data.get("expire_time", ""))
        if reply.code == 0 and answer.is_success and isinstance(text, str) and text:
            if ends.isascii() and ends.isdigit() and len(ends) < 16:
                return Token(text, int(ends) / _MS - self._now())
            raise TokenRefused("a token without its end")
        login = reply.code in _LOGIN_CODES and reply.code not in _PASSING
        refused = LoginRefused if login else TokenRefused
        raise refused(f"{reply.code}: {reply.msg[:_MAX_DETAIL]}")


class GetuiChannel(ClockedChannel):
    """Stateless but for a clock."""

    provider: ClassVar[str] = PROVIDER
    channel: ClassVar[str] = "push"
    options: ClassVar[type[msgspec.Struct]] = GetuiOptions
    endpoint: ClassVar[str] = "https://restapi.getui.com/v2"
    tokens: ClassVar[TokenSource | None] = GetuiTokens()
    counted_by: ClassVar[Sequence[str]] = ("app_id",)
    errors: ClassVar[ErrorTable] = _ERRORS
    promises: ClassVar[Capabilities] = Capabilities(
        title="GeTui push (个推, REST v2)",
        idempotency="a repeated request_id loses the message, for how long is not documented; each "
        "attempt has its own",
        receipts="pushed where GeTui switched them on, by task id and CID, signed with the master secret",
        limits="one device or alias a call; title 50, text 256 characters; kept for at most 3 days",
        source=(
            "https://docs.getui.com/getui/server/rest_v2/push",
            "https://docs.getui.com/getui/server/rest_v2/code",
            "https://docs.getui.com/getui/server/receipt/",
        ),
    )

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses a receiver that is neither CID nor alias, and a content that GeTui cannot send."""
        receiver = delivery.receiver
        if wrong := wrong_receiver(account, self.channel, receiver):
            return wrong
        alias = receiver.startswith(_ALIAS)
        if not (_NAME if alias else _CID).fullmatch(receiver.removeprefix(_ALIAS)):
            return "bad_receiver: give a CID, or alias: and a name of at most 40 characters"
        try:
            read(delivery)
            msgspec.json.encode(delivery.content_for(PROVIDER))
        except UNSENDABLE as exc:
            return reason_of(exc)
        return ""

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery."""
        (delivery,) = call.deliveries
        account, receiver = call.account, delivery.receiver
        kind = "alias" if receiver.startswith(_ALIAS) else "cid"
        url = _address(account.endpoint, account.options.app_id, f"push/single/{kind}")
        body = {
            "request_id": f"{call.key[:_NAMED]}{delivery.attempt % 10_000:04d}",
            "audience": {kind: [receiver.removeprefix(_ALIAS)]},
            **message(delivery, self._now()),
        }
        fields = [*fields_of(url), (b"token", call.token.encode("latin-1"))]
        return post_json(url, fields, msgspec.json.encode(body), extensions_of(account))

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        reply = _read(answer)
        if reply is None:
            foreign = Unknown("malformed_answer", "an answer that is not GeTui's")
            return for_all(call, refusal(answer) or foreign)
        if reply.code == 0:
            return for_all(call, self._taken(reply.data) if answer.is_success else CONTRADICTION)
        code, detail = str(reply.code), reply.msg[:_MAX_DETAIL]
        return for_all(call, self.errors.outcome(code, detail, status=answer.status_code))

    def token_refused(self, answer: httpx.Response) -> bool:
        """Returns whether the token was wrong or has expired."""
        reply = _read(answer)
        return reply is not None and str(reply.code) == _TOKEN_CODE

    def _taken(self, data: Any) -> AnyOutcome:
        """Returns the outcome of code 0. An alias may name several devices; one accepted is enough."""
        for task, statuses in data.items() if isinstance(data, dict) else ():
            found = set(statuses.values()) if isinstance(statuses, Mapping) else set()
            if task and found & _TAKEN:
                return Accepted(task)
            if found == {_IGNORED}:
                return Rejected(_IGNORED, "the device was not seen for 90 days")
        return Unknown("no_status", "the answer does not speak of the device")


@lru_cache(maxsize=256)
def _address(endpoint: str, app_id: str, path: str) -> httpx.URL:
    return below(endpoint_url(endpoint), f"{app_id}/{path}")


def _read(answer: httpx.Response) -> _Answered | None:
    return decoded(_decoder.decode, answer.content)


CHANNELS = (GetuiChannel(),)
