"""The answers of oapi.dingtalk.com, which work notices and robots share, and its addresses.

    {"errcode": 0, "errmsg": "ok", ...}                                           always with status 200
    {"errcode": 88, "sub_code": "60011", "sub_msg": "...", "errmsg": "..."}       the sub_code tells
    {"errcode": 15, "sub_code": "isv.…", "sub_msg": "...", "errmsg": "..."}       and here

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
    """What is read of an answer."""

    errcode: int
    errmsg: str | None = ""
    sub_code: str | int | None = ""
    sub_msg: str | None = ""
    task_id: int = 0

    @property
    def code(self) -> str:
        """The code that tells: a `sub_code` where the gateway refused, and behind 15, of a service."""
        code = str(self.errcode)
        if code == _SERVICE and self.sub_code:
            return f"{code}.{self.sub_code}"
        return str(self.sub_code) if code == _GATEWAY and self.sub_code else code

    @property
    def detail(self) -> str:
        """The provider's sentence."""
        return (self.sub_msg or self.errmsg or "")[:_MAX_DETAIL]


_decoder = msgspec.json.Decoder(DingTalkAnswer)


def read(answer: httpx.Response) -> DingTalkAnswer | None:
    """The answer's body; None where it cannot be read."""
    return decoded(_decoder.decode, answer.content)


def refused(errors: ErrorTable, answer: httpx.Response) -> AnyOutcome | None:
    """What an answer means that is not `errcode` 0; None for that one."""
    said = read(answer)
    if said is not None and said.code != "0":
        return errors.outcome(said.code, said.detail)
    outcome = refusal(answer)
    if outcome is not None and said is not None:
        return CONTRADICTION
    if outcome is None and said is None:
        return Unknown("malformed_answer", "an answer without an errcode")
    return outcome


@lru_cache(maxsize=256)
def address(endpoint: str, path: str) -> httpx.URL:
    """A path of the provider's, below whatever path the account's endpoint has."""
    return below(endpoint_url(endpoint), path)
