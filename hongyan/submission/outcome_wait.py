"""Waits until deliveries have ended, by asking the ledger."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from hongyan.enqueue import EnqueuedNotification
from idempotency.ledger import LedgerError
from idempotency.lookups import LIMIT, FoundRow
from message.delivery import Rendered
from message.envelope import EnvelopeError, Notification
from message.states import OPEN, State
from policy.schema import Guarantee, Policy

ARRIVED: Final = frozenset({State.SENT, State.DELIVERED})
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.0
_GROWTH: Final = 1.5

Find = Callable[[Sequence[str]], list[FoundRow]]
"""Returns the rows of some delivery keys, in one query. Raises LedgerError."""


class DeliveryEnd(msgspec.Struct, frozen=True):
    """One delivery after the wait. `state` None: the ledger has no row of it."""

    id: str
    delivery_key: str
    lane: str
    receiver: str
    """Masked."""
    state: str | None
    reason: str | None = None
    provider_id: str | None = None
    account: str | None = None
    attempt: int = 0

    @property
    def arrived(self) -> bool:
        """Whether a provider accepted it."""
        return self.state in ARRIVED

    @property
    def ended(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.state is not None and self.state not in OPEN


class LedgerNeeded:
    """Refuses notifications of lanes without a ledger: nothing records their outcome."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __call__(self, notification: Notification, rendered: Rendered | None = None) -> None:
        """Raises EnvelopeError."""
        lane = notification.lane
        if self._policy.of(lane).guarantee is Guarantee.BEST_EFFORT:
            raise EnvelopeError(
                "no_ledger",
                "$.kind",
                f"lane {lane.name} is best_effort, so nothing records its outcome; send without --wait",
            )


class OutcomeWait:
    """Asks for a page of open deliveries at a time, in turns. For one thread."""

    def __init__(
        self,
        find: Find,
        keys: Iterable[str],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rows: dict[str, FoundRow] = {}
        """The newest row of each delivery that the ledger has."""
        self.failure = ""
        """Why the last question had no answer; empty: it had one."""
        self._find = find
        self._open = deque(keys)
        self._monotonic = monotonic
        self._sleep = sleep

    def run(self, timeout_s: float) -> None:
        """Returns once every delivery has ended, or the time has passed."""
        deadline = self._monotonic() + timeout_s
        pause = _FIRST_PAUSE_S
        while self._open:
            self._ask()
            left = deadline - self._monotonic()
            if not self._open or left <= 0:
                return
            self._sleep(min(pause, left))
            if len(self._open) <= LIMIT:
                pause = min(pause * _GROWTH, _LONGEST_PAUSE_S)

    def ends(self, sent: Iterable[EnqueuedNotification]) -> list[DeliveryEnd]:
        """Returns the deliveries of these notifications with the states that were found."""
        return [
            _end(
                one, delivery.delivery_key, delivery.receiver, self.rows.get(delivery.delivery_key)
            )
            for one in sent
            for delivery in one.deliveries
        ]

    def _ask(self) -> None:
        """One query. Those still open are asked for again after all others."""
        asked = [self._open.popleft() for _ in range(min(len(self._open), LIMIT))]
        try:
            self.rows |= {row.delivery_key: row for row in self._find(asked)}
            self.failure = ""
        except LedgerError as exc:
            self.failure = str(exc)
        self._open.extend(key for key in asked if self._is_open(key))

    def _is_open(self, key: str) -> bool:
        row = self.rows.get(key)
        return row is None or row.state in OPEN


def _end(sent: EnqueuedNotification, key: str, receiver: str, row: FoundRow | None) -> DeliveryEnd:
    if row is None:
        return DeliveryEnd(sent.id, key, sent.lane, receiver, None)
    return DeliveryEnd(
        *(sent.id, key, sent.lane, receiver, row.state),
        *(row.reason, row.provider_id, row.account, row.attempt),
    )
