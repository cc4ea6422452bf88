"""Which deliveries share a provider call: those of one lane, one account and one batch key.

Pure. The call's key is the first delivery's: it is on record for each of them before the call is made,
so that what the provider knows the call by can be asked about even if this worker is gone by then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from channels.channel import Call
from dispatcher.work import Work


class Limits(Protocol):
    """What grouping asks of a lane."""

    @property
    def batch(self) -> int:
        """Deliveries a call may carry by the lane's policy; an account's provider may take fewer."""
        ...


def calls_of(works: Iterable[Work], lanes: Mapping[str, Limits]) -> list[list[Work]]:
    """The works divided into calls, in their order; sets `account` and `call_key`, and the digest of
    the body where the provider dedups by it. Every work has its route."""
    calls: list[list[Work]] = []
    open_calls: dict[Hashable, list[Work]] = {}
    for work in works:
        account, channel = work.chosen
        delivery = work.delivery
        limit = min(channel.max_batch, lanes[delivery.lane].batch)
        if limit == 1 or work.drop is not None or work.hold_ms:
            calls.append([work])
            continue
        key = (delivery.lane, account.name, channel.batch_key(delivery))
        call = open_calls.get(key)
        if call is None or len(call) >= limit:
            call = open_calls[key] = []
            calls.append(call)
        call.append(work)
    for call in calls:
        put_on_record(call)
    return calls


def put_on_record(works: Sequence[Work]) -> None:
    """Write account and key of their one call on the deliveries, and the digest of its body where the
    provider's dedup compares bodies."""
    account, channel = works[0].chosen
    call_key = works[0].delivery.key if len(works) > 1 else ""
    for work in works:
        work.delivery.account, work.delivery.call_key = account.name, call_key
    if channel.dedup_window_ms == 0:
        return
    digest = channel.fingerprint(Call(account, [work.delivery for work in works]))
    for work in works:
        work.delivery.call_digest = digest
