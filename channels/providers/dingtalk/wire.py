"""The answers of oapi.dingtalk.com, for work notices and robots, and its addresses.

    {"errcode": 0, "errmsg": "ok", ...}                                           always with status 200
    {"errcode": 88, "sub_code": "60011", "sub_msg": "...", "errmsg": "..."}       the sub_code decides
    {"errcode": 15, "sub_code": "isv.…", "sub_msg": "...", "errmsg": "..."}       here too

Source: https://open.dingtalk.com/document/orgapp/server-api-error-codes-1
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import httpx
import msgspec

from channels.endpoints import below, endpoint_url
from channels.judging.error_table import ErrorTable
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import CONTRADICTION, refusal
from message.outcomes import AnyOutcome, Unknown

ENDPOINT: Final = "https://oapi.dingtalk.com"
_GATEWAY, _SERVICE = "88", "15"
_MAX_DETAIL: Final = 200


class DingTalkAnswer(msgspec.Struct):
    """The fields of an answer that are used."""

    errcode: int
    errmsg: str | None = ""
    sub_code: str | int | None = ""
    sub_msg: str | None = ""
    task_id: int = 0

    @property
    def code(self) -> str:
        """The deciding code: the `sub_code` of 88, `15.<sub_code>` of a service, else errcode."""
        code = str(self.errcode)
        if code == _SERVICE and self.sub_code:
            return f"{code}.{self.sub_code}"
        return str(self.sub_code) if code == _GATEWAY and self.sub_code else code

    @property
    def detail(self) -> str:
        """The provider's text, cut to `_MAX_DETAIL`."""
        return (self.sub_msg or self.errmsg or "")[:_MAX_DETAIL]


_decoder = msgspec.json.Decoder(DingTalkAnswer)


def read(answer: httpx.Response) -> DingTalkAnswer | None:
    """Returns the answer's body; None if it cannot be read."""
    return decoded(_decoder.decode, answer.content)


def refused(errors: ErrorTable, answer: httpx.Response) -> AnyOutcome | None:
    """Returns the outcome of an answer without `errcode` 0; None if it has it."""
    reply = read(answer)
    if reply is not None and reply.code != "0":
        return errors.outcome(reply.code, reply.detail)
    outcome = refusal(answer)
    if outcome is not None and reply is not None:
        return CONTRADICTION
    if outcome is None and reply is None:
        return Unknown("malformed_answer", "an answer without an errcode")
    return outcome


@lru_cache(maxsize=256)
def address(endpoint: str, path: str) -> httpx.URL:
    """Returns the URL of a provider's path, below the path of the account's endpoint."""
    return below(endpoint_url(endpoint), path)
