"""The answers of open.feishu.cn and open.larksuite.com, for application and robot.

    {"code": 0, "msg": "success", "data": {"message_id": "om_…"}}
    {"code": 230002, "msg": "The bot can not be outside the group."}                        status 400

Over the rate limit: status 429, or 400 on older interfaces, with code 99991400 and the field
`x-ogw-ratelimit-reset`, seconds to wait.

Status 400 proves nothing: nearly every code other than 0 comes with it, among them 230049 ("the message is
being sent"). So an unlisted code under 400 is Unknown; under another 4xx the status decides.

Sources: https://open.feishu.cn/document/server-docs/api-call-guide/generic-error-code,
https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import httpx
import msgspec

from channels.endpoints import below, endpoint_url, with_query
from channels.judging.error_table import ErrorTable, RowSource
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import CONTRADICTION, refusal
from channels.judging.retry_after import MAX_MS
from message.outcomes import AnyOutcome, NotSent, Unknown

ENDPOINT: Final = "https://open.feishu.cn"
COMMON: Final = RowSource(
    "https://open.feishu.cn/document/server-docs/api-call-guide/generic-error-code",
    "2026-11-22",
    copy="a summary of the page in a public repository, made on 2026-09-11",
)
SERVER_CODES: Final = RowSource(
    "https://open.larksuite.com/document/ukTMukTMukTM/ugjM14COyUjL4ITN",
    "2026-11-28",
    copy="a copy of the page of 2022-03-03 in a public repository",
)
RATE_LIMITED: Final = "99991400"
_RESET: Final = "x-ogw-ratelimit-reset"
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)
_MAX_DETAIL: Final = 200
_PROVES_NOTHING: Final = 400


class _Data(msgspec.Struct):
    message_id: str = ""


class FeishuAnswer(msgspec.Struct):
    """The fields of an answer that are used. The robot's older form has only `StatusCode` and
    `StatusMessage`."""

    code: int | None = None
    msg: str | None = ""
    data: _Data | None = None
    StatusCode: int | None = None
    StatusMessage: str | None = ""

    @property
    def message_id(self) -> str:
        """The provider's id of the message; empty for a robot's."""
        return self.data.message_id if self.data is not None else ""

    @property
    def detail(self) -> str:
        """The provider's text, cut to `_MAX_DETAIL`."""
        return (self.msg or self.StatusMessage or "")[:_MAX_DETAIL]


_decoder = msgspec.json.Decoder(FeishuAnswer)


def read(answer: httpx.Response) -> FeishuAnswer | None:
    """Returns the answer's body; None if it cannot be read."""
    return decoded(_decoder.decode, answer.content)


def code_of(reply: FeishuAnswer | None) -> str:
    """Returns the answer's code; empty if it has none."""
    if reply is None:
        return ""
    code = reply.StatusCode if reply.code is None else reply.code
    return "" if code is None else str(code)


def refused(errors: ErrorTable, answer: httpx.Response) -> AnyOutcome | None:
    """Returns the outcome of an answer without code 0; None if it has it."""
    reply = read(answer)
    code = code_of(reply)
    if reply is not None and code not in ("", "0"):
        status = 0 if answer.status_code == _PROVES_NOTHING else answer.status_code
        return errors.outcome(code, reply.detail, _wait_ms(answer), status=status)
    outcome = refusal(answer)
    if outcome is not None and code:
        return CONTRADICTION
    if isinstance(outcome, NotSent) and outcome.retry_after_ms is None:
        return msgspec.structs.replace(outcome, retry_after_ms=_wait_ms(answer))
    if outcome is None and not code:
        return Unknown("malformed_answer", "an answer without a code")
    return outcome


@lru_cache(maxsize=256)
def address(endpoint: str, path: str) -> httpx.URL:
    """Returns the URL of a provider's path, below the path of the account's endpoint."""
    return below(endpoint_url(endpoint), path)


@lru_cache(maxsize=256)
def address_for(endpoint: str, path: str, query: str) -> httpx.URL:
    """Returns the same URL with `query`, quoted already, behind the endpoint's own query."""
    return with_query(address(endpoint, path), query)


def _wait_ms(answer: httpx.Response) -> int | None:
    text = answer.headers.get(_RESET, "").strip()
    return min(int(text) * 1_000, MAX_MS) if _SECONDS.fullmatch(text) else None
