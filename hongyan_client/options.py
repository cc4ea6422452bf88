"""Options of a client, and the rules between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hongyan_client.errors import WrongProperties
from hongyan_client.publisher import DEFAULT_LIMITS, BufferLimits
from message.envelope import Notification
from message.vocabulary import DEFAULT_TTL_MS, LANES


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Times in seconds."""

    deadline_s: float = 10.0
    """Longest wait of a caller for room in the buffer."""
    delivery_timeout_s: float = 30.0
    """Time for all tries of one record. It must be below each lane's time to live."""
    limits: BufferLimits = DEFAULT_LIMITS
    lane_ttl_s: Mapping[str, float] = field(default_factory=dict)
    """Times to live by lane, where the policy has others than 5 minutes and 24 hours."""
    trace: bool = True
    """Whether acknowledged notifications are announced in the trace topic."""
    hash_key: str = ""
    """`outcomes.hash_key` of the platform: the trace then finds receivers by their hash."""
    hot_share: float = 0.2
    """Share of its lane's notifications from which an ordering key is named as hot."""

    def check(self) -> None:
        """Raises WrongProperties where two options contradict each other."""
        names = {lane.name for lane in LANES}
        for name in self.lane_ttl_s:
            if name not in names:
                raise WrongProperties(
                    f"options.lane_ttl_s: there is no lane {name!r}; write one as in sms.verification"
                )
        name, least = min(
            ((lane.name, self.ttl_ms(lane.name) / 1_000) for lane in LANES), key=lambda one: one[1]
        )
        if self.delivery_timeout_s >= least:
            raise WrongProperties(
                f"options.delivery_timeout_s is {self.delivery_timeout_s:g} s, and notifications of lane "
                f"{name} live {least:g} s: one could expire while it is tried; lower the timeout"
            )

    def ttl_ms(self, lane: str) -> int:
        """Returns the lane's time to live in milliseconds."""
        known = self.lane_ttl_s.get(lane)
        return DEFAULT_TTL_MS[lane.rpartition(".")[2]] if known is None else int(known * 1_000)

    def expires_at(self, notification: Notification) -> int:
        """Returns the epoch milliseconds after which nobody sends it."""
        own = notification.ttl_ms
        ttl = self.ttl_ms(f"{notification.channel}.{notification.kind}") if own is None else own
        return notification.created_at + ttl


DEFAULT_OPTIONS = ClientOptions()
