"""Which retries share a provider call: those of one account and one batch key, as in live lanes.

    never sent for sure    joins others; the call's key is that of its first delivery
    in doubt               alone: its call key names the earlier call, to the provider's query too
    a repeat               alone, and only where alone it is the same to the provider's dedup. An adapter
                           whose digest leaves out whom the call names (DingTalk) is repeated to one
                           receiver of many; one whose digest has them (WeCom) is not, and a joint call of
                           it in doubt is for the policy to decide

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from recovery.retry.pool import RetryWork
from sending.batching import ALONE, Sharing, batch_into_calls, within


def calls_of(resends: Iterable[RetryWork], most: int | None) -> list[list[RetryWork]]:
    """Returns the retries divided into calls, in their order. `most`: deliveries a call by the lane's
    policy; None: as many as the provider takes."""

    def sharing(resend: RetryWork) -> Sharing:
        account, channel = resend.route
        if channel.max_batch == 1 or resend.doubted:
            return ALONE
        delivery = resend.delivery
        key = account.name, channel.batch_key(delivery)
        return Sharing(within(channel.batch_limit(delivery), most), key)

    return batch_into_calls(resends, sharing)
