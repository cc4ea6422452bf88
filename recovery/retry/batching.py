"""Batching of retries: one account and one batch key share a provider call, as in live lanes. Pure.

surely not sent     joins others; the call's key is that of its first delivery
in doubt            alone: its call key names the earlier call, also in the provider's query
a repeat            alone, and only if alone it is the same to the provider's dedup: so where the
                    digest leaves out the receivers (DingTalk), not where it has them (WeCom)
"""

from __future__ import annotations

from collections.abc import Iterable

from recovery.retry.pool import RetryWork
from sending.batching import ALONE, Sharing, batch_into_calls, within


def calls_of(resends: Iterable[RetryWork], most: int | None) -> list[list[RetryWork]]:
    """Returns the retries divided into calls, in their order. `most`: the policy's limit of deliveries in a
    call; None: the provider's."""

    def sharing(resend: RetryWork) -> Sharing:
        account, channel = resend.route
        if channel.max_batch == 1 or resend.doubted:
            return ALONE
        delivery = resend.delivery
        key = account.name, channel.batch_key(delivery)
        return Sharing(within(channel.batch_limit(delivery), most), key)

    return batch_into_calls(resends, sharing)
