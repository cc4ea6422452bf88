"""The answers of open.feishu.cn (and of open.larksuite.com), which application and robot share.

    {"code": 0, "msg": "success", "data": {"message_id": "om_…"}}
    {"code": 230002, "msg": "The bot can not be outside the group."}                        status 400

Over the rate limit: status 429, or 400 on older interfaces, with code 99991400 and the field
`x-ogw-ratelimit-reset`, seconds to wait.

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
RATE_LIMITED: Final = "99991400"
_RESET: Final = "x-ogw-ratelimit-reset"
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)
_MAX_DETAIL: Final = 200


class _Data(msgspec.Struct):
    message_id: str = ""


class FeishuAnswer(msgspec.Struct):
    """What is read of an answer. The robot's older form has
    `StatusCode` and `StatusMessage` alone."""

    code: int | None = None
    msg: str | None = ""
    data: _Data | None = None
    StatusCode: int | None = None
    StatusMessage: str | None = ""

    @property
    def message_id(self) -> str:
        """The provider's name for the message; a robot's has none."""
        return self.data.message_id if self.data is not None else ""

    @property
    def detail(self) -> str:
        """The provider's sentence."""
        return (self.msg or self.StatusMessage or "")[:_MAX_DETAIL]


_decoder = msgspec.json.Decoder(FeishuAnswer)


def read(answer: httpx.Response) -> FeishuAnswer | None:
    """The answer's body; None where it cannot be read."""
    return decoded(_decoder.decode, answer.content)


def code_of(said: FeishuAnswer | None) -> str:
    """The answer's code; empty where it has none."""
    if said is None:
        return ""
    code = said.StatusCode if said.code is None else said.code
    return "" if code is None else str(code)


def refused(errors: ErrorTable, answer: httpx.Response) -> AnyOutcome | None:
    """What an answer means that is not code 0; None for that one."""
    said = read(answer)
    code = code_of(said)
    if said is not None and code not in ("", "0"):
        return errors.outcome(code, said.detail, _wait_ms(answer), status=answer.status_code)
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
    """A path of the provider's, below whatever path the account's endpoint has."""
    return below(endpoint_url(endpoint), path)


@lru_cache(maxsize=256)
def address_for(endpoint: str, path: str, query: str) -> httpx.URL:
    """The same with a query, quoted already, behind the one that the endpoint may have."""
    return with_query(address(endpoint, path), query)


def _wait_ms(answer: httpx.Response) -> int | None:
    text = answer.headers.get(_RESET, "").strip()
    return min(int(text) * 1_000, MAX_MS) if _SECONDS.fullmatch(text) else None
