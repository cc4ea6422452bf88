"""The common part of the incoming webhooks of Slack, Discord, Mattermost and Teams.

    POST <endpoint>/<hook>      JSON

The address alone allows posting, so its part behind the host is a secret: option `hook`. It is in no log,
trace, page or error, and `hongyan accounts test` masks it. The address also decides which group gets a
message: an account names its group and refuses any other receiver. None of the four has idempotency or a
query: an attempt in doubt stays in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import httpx
import msgspec

from channels.accounts.reach import ONE_GROUP, GroupName, Reach, wrong_receiver
from channels.bad_content import UNSENDABLE, reason_of
from channels.base import BaseChannel
from channels.channel import Account, Answer, Call, Failure
from channels.endpoints import endpoint_url
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging.error_table import ErrorTable
from channels.judging.outcomes import for_all, of_failure
from channels.judging.retry_after import retry_after_ms
from channels.secret import Secret
from message.delivery import Delivery
from message.outcomes import AnyOutcome

_HOOK: Final = re.compile(r"/?[A-Za-z0-9._~!$&'()*+,;=:@%-][A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")
_ADDRESS: Final = "://"
_MAX_DETAIL: Final = 200
LIMITER_STATUS: Final = (
    "the status of RFC 6585 §4; no page of the provider's that was read names a code"
)


class HookOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    hook: Secret
    """The webhook's address behind the host, query and all."""
    group: GroupName
    """A name of ours for the group that it posts to: its one receiver is `group:` and this name."""

    def __post_init__(self) -> None:
        """Raises ValueError, whose text does not show it, for an impossible hook."""
        text = self.hook.reveal()
        if _ADDRESS in text.partition("?")[0]:
            raise ValueError(
                "hook: give what follows the host in the webhook's address; scheme and host are the"
                " account's endpoint"
            )
        if not _HOOK.fullmatch(text):
            raise ValueError("hook: holds characters that no address has; copy it once more")


class HookChannel(BaseChannel):
    """Base of the four adapters, which provide `body` and `outcome`."""

    channel: ClassVar[str] = "chat"
    options: ClassVar[type[msgspec.Struct]] = HookOptions
    reach: ClassVar[Reach] = ONE_GROUP
    counted_by: ClassVar[Sequence[str]] = ("hook",)
    provider: ClassVar[str]
    max_bytes: ClassVar[int] = 0
    """Bytes of a request's body; 0: no limit is documented."""

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses any receiver but the webhook's group, and a content that it cannot send."""
        if wrong := wrong_receiver(account, self.channel, delivery.receiver):
            return wrong
        try:
            size = len(msgspec.json.encode(self.body(delivery)))
        except UNSENDABLE as exc:
            return reason_of(exc)
        if self.max_bytes and size > self.max_bytes:
            return f"too_long: the message has {size:,} bytes; {self.provider} takes {self.max_bytes:,}"
        return ""

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery."""
        (delivery,) = call.deliveries
        account = call.account
        url = self.address(account)
        body = msgspec.json.encode(self.body(delivery))
        return post_json(url, fields_of(url), body, extensions_of(account))

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        return for_all(call, self.outcome(call, answer))

    def address(self, account: Account) -> httpx.URL:
        """Returns the address of the account's webhook."""
        return hook_url(account)

    def body(self, delivery: Delivery) -> dict[str, Any]:
        """Returns the body to post, before it becomes JSON. Raises BadContent."""
        raise NotImplementedError

    def outcome(self, call: Call, answer: httpx.Response) -> AnyOutcome:
        """Returns the outcome of an answer."""
        raise NotImplementedError


def hook_url(account: Account) -> httpx.URL:
    """Returns `<endpoint>/<hook>`."""
    url, hook = endpoint_url(account.endpoint), account.options.hook.reveal()
    path = url.raw_path.partition(b"?")[0].rstrip(b"/")
    return url.copy_with(raw_path=path + b"/" + hook.lstrip("/").encode("ascii"))


def refused(
    table: ErrorTable, code: str, detail: str, answer: httpx.Response, wait_ms: int | None = None
) -> AnyOutcome:
    """Returns the outcome of a code; `wait_ms` is the wait in the body, by default Retry-After."""
    asked = retry_after_ms(answer.headers, 0.0) if wait_ms is None else wait_ms
    return table.outcome(code, detail[:_MAX_DETAIL], asked, status=answer.status_code)
