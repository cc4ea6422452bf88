"""Which resends share a provider call: those of one account and one batch key, as in live lanes.

    never sent for sure    joins others; the call's key is that of its first delivery
    in doubt               alone: its call key names the earlier call, to the provider's query too
    a repeat               alone, and only where alone it is the same to the provider's dedup. An adapter
                           whose digest leaves out whom the call names (DingTalk) is repeated to one
                           receiver of many; one whose digest has them (WeCom) is not, and a joint call of
                           it in doubt is for the policy to decide

Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from recovery.retry.pool import RetryWork


def calls_of(resends: Iterable[RetryWork], most: int | None) -> list[list[RetryWork]]:
    """The resends divided into calls, in their order; `most` deliveries a call by the lane's policy, None:
    as many as the provider takes. Nothing is written on them yet (`recovery.retry.pool.put_on_record`)."""
    calls: list[list[RetryWork]] = []
    joint: dict[Hashable, list[RetryWork]] = {}
    for resend in resends:
        limit = _limit(resend, most)
        if limit == 1:
            calls.append([resend])
            continue
        key = (resend.route.account.name, resend.route.channel.batch_key(resend.delivery))
        call = joint.get(key)
        if call is None or len(call) >= limit or _has(call, resend.delivery.receiver):
            call = joint[key] = []
            calls.append(call)
        call.append(resend)
    return calls


def _limit(resend: RetryWork, most: int | None) -> int:
    channel = resend.route.channel
    if channel.max_batch == 1 or resend.doubted:
        return 1
    limit = channel.batch_limit(resend.delivery)
    return limit if most is None else min(limit, most)


def _has(call: list[RetryWork], receiver: str) -> bool:
    """One receiver twice in one call could not be told apart by what the provider answers."""
    return any(resend.delivery.receiver == receiver for resend in call)
