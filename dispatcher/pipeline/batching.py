"""Which deliveries share a provider call: those of one lane under the same terms, one account and one batch
key.

Pure. The call's key is the first delivery's: it is on record for each of them before the call is made,
so that what the provider knows the call by can be asked about even if this worker is gone by then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from channels.channel import Call
from channels.engine import adapter_failed
from dispatcher.pipeline.lane_config import asked
from dispatcher.pipeline.work import Work


class Lanes(Protocol):
    """What grouping asks of a lane."""

    @property
    def most(self) -> int | None:
        """Deliveries a call may carry by the lane's policy; None: as many as the provider takes."""
        ...


class _Open:
    """A call that others may still join."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.works: list[Work] = []
        self.receivers: set[str] = set()

    def takes(self, work: Work) -> bool:
        """One receiver twice in one call could not be told apart by what the provider answers."""
        return len(self.works) < self.limit and work.delivery.receiver not in self.receivers

    def add(self, work: Work) -> None:
        self.works.append(work)
        self.receivers.add(work.delivery.receiver)


def calls_of(works: Iterable[Work], lanes: Mapping[str, Lanes]) -> list[list[Work]]:
    """The works divided into calls, in their order; sets `account` and `call_key`, and the digest of
    the body where the provider dedups by it. Every work has its route. What can never be sent joins no
    call, and says why."""
    calls: list[list[Work]] = []
    joint: dict[Hashable, _Open] = {}
    for work in works:
        account, channel = work.chosen
        if channel.takes_anything:
            work.delivery.account = account.name
            calls.append([work])
            continue
        limit, key = _asked(work, lanes[work.delivery.lane].most)
        if limit == 1:
            calls.append([work])
            continue
        call = joint.get(key)
        if call is None or not call.takes(work):
            call = joint[key] = _Open(limit)
            calls.append(call.works)
        call.add(work)
    for some in calls:
        if not some[0].chosen[1].takes_anything:
            put_on_record(some)
    return calls


def _asked(work: Work, most: int | None) -> tuple[int, Hashable]:
    """How many may share the delivery's call, and which. An adapter that fails over a message refuses that
    message: it must not take the worker down, which would read it again and again."""
    account, channel = work.chosen
    delivery = work.delivery
    if asked(work, account, channel) or work.drop is not None or work.hold_ms:
        return 1, None
    if channel.max_batch == 1:
        return 1, None
    try:
        limit = channel.batch_limit(delivery)
        key = (delivery.lane, work.terms, account.name, channel.batch_key(delivery))
    except Exception as exc:
        work.refused = f"adapter_error: {adapter_failed(channel, 'batch_key', exc)}"
        return 1, None
    return limit if most is None else min(limit, most), key


def put_on_record(works: Sequence[Work], call_key: str | None = None) -> None:
    """Write account and key of their one call on the deliveries, and the digest of its body where the
    provider's dedup compares bodies. `call_key` None: of a first call."""
    account, channel = works[0].chosen
    if call_key is None:
        call_key = works[0].delivery.key if len(works) > 1 else ""
    for work in works:
        work.delivery.account, work.delivery.call_key = account.name, call_key
    if channel.dedup_window_ms and not works[0].refused and works[0].drop is None:
        digest = _digest(works)
        for work in works:
            work.delivery.call_digest = digest


def _digest(works: Sequence[Work]) -> str:
    """Of the call's body; none where the adapter fails over it: then no repeat is relied on."""
    account, channel = works[0].chosen
    try:
        return channel.fingerprint(Call(account, [work.delivery for work in works]))
    except Exception as exc:  # whatever an adapter raises: no repeat is relied on then
        adapter_failed(channel, "fingerprint", exc)
        return ""
