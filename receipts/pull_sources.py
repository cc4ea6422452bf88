"""Providers that are asked for receipts: their requests, and the readers of their answers. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from channels.channel import Account
from channels.providers.tencent_sms.adapter import TencentSms
from channels.registry import PROVIDERS
from receipts.parsers.tencent_sms import pulled
from receipts.push import Parsed


class Pull(NamedTuple):
    """One provider's queue of receipts; it forgets the receipts that it gives out."""

    request: Callable[[Account], Any]
    """The signed request, as the transport takes it."""
    read: Callable[[str, bytes], Parsed]
    """Returns the receipts in an answer, and the number of unreadable ones. Raises Malformed."""
    most: int
    """Receipts that one answer holds at most; after a full one more are waiting."""


def _tencent(account: Account) -> Any:
    adapter = PROVIDERS[TencentSms.provider]
    assert isinstance(adapter, TencentSms)
    return adapter.pull(account, _TENCENT_MOST)


_TENCENT_MOST: Final = 100
PULLS: Final[Mapping[str, Pull]] = {
    TencentSms.provider: Pull(_tencent, pulled, _TENCENT_MOST),
}
