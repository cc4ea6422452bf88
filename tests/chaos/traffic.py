"""Produces the planned notifications while the run goes on, never far ahead of what is settled."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from itertools import islice

from message.envelope import Notification
from message.ids import new_id
from tests.chaos.plan import FICKLE, FICKLE_RECEIVER, Draft, Plan
from tests.harness import Fleet, notification

CHUNK = 100
_WAIT_S = 0.05
_KEPT = 500
"""Of those produced, the ones that may be produced once more."""


class Traffic:
    """A thread. `may_send` says how many deliveries may have been produced by now."""

    def __init__(self, fleet: Fleet, plan: Plan, may_send: Callable[[], float]) -> None:
        self.produced = 0
        """Deliveries that Kafka acknowledged; this thread writes."""
        self.repeats = 0
        self.failure: BaseException | None = None
        self._fleet = fleet
        self._plan = plan
        self._may_send = may_send
        self._luck = random.Random(f"repeats/{plan.seed}")
        self._kept: list[Notification] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Produce nothing more; idempotent."""
        self._stop.set()
        self._thread.join(90)

    def _run(self) -> None:
        try:
            drafts = self._plan.drafts()
            while chunk := list(islice(drafts, CHUNK)):
                while self.produced >= self._may_send():
                    if self._stop.wait(_WAIT_S):
                        return
                self._produce(chunk)
        except BaseException as exc:
            self.failure = exc

    def _produce(self, drafts: Sequence[Draft]) -> None:
        fresh = [_notification(draft) for draft in drafts if not draft.again]
        wanted = len(drafts) - len(fresh)
        repeats = self._luck.choices(self._kept, k=wanted) if self._kept else []
        self._fleet.send([*fresh, *repeats])
        self.produced += sum(len(one.receivers) for one in fresh)
        self.repeats += len(repeats)
        # A repeat in an ordered line would have no place in its order.
        unordered = [one for one in fresh if one.ordering_key is None]
        self._kept = [*self._kept, *unordered][-_KEPT:]


def _notification(draft: Draft) -> Notification:
    identity = new_id()
    prefix = FICKLE_RECEIVER if draft.lane == FICKLE else "to-"
    receivers = [f"{prefix}{identity}-{number}" for number in range(draft.receivers)]
    return notification(
        draft.lane, id=identity, receivers=receivers, ordering_key=draft.ordering_key
    )
