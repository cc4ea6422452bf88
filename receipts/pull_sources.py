"""Providers that are asked for receipts: what to ask, and how the answer is read. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from channels.channel import Account
from channels.providers.tencent_sms.adapter import TencentSms
from channels.registry import PROVIDERS
from receipts.parsers.tencent_sms import pulled
from receipts.push import Parsed


class Pull(NamedTuple):
    """One provider's queue of receipts, which forgets what it gives out."""

    request: Callable[[Account], Any]
    """The signed request, as the transport takes it."""
    read: Callable[[str, bytes], Parsed]
    """The receipts in an answer, and the number of those that cannot be read; raises Malformed."""
    most: int
    """Receipts that one answer holds; when it holds so many, more are waiting."""


def _tencent(account: Account) -> Any:
    adapter = PROVIDERS[TencentSms.provider]
    assert isinstance(adapter, TencentSms)
    return adapter.pull(account, _TENCENT_MOST)


_TENCENT_MOST: Final = 100
PULLS: Final[Mapping[str, Pull]] = {
    TencentSms.provider: Pull(_tencent, pulled, _TENCENT_MOST),
}
