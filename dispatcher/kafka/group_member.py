"""The worker's membership in its consumer group: one Consumer, opened anew after a refusal.

Two refusals do not end the worker:

    assignor      the broker does not know it (KIP-848), or the other members use another one (classic):
                  the next one is offered
    instance id   another member still has it (KIP-848): after kill -9 that is this worker's former run,
                  until its session ends

A refused Consumer never works again, so it is closed and replaced. The source handles all other errors
(docs/decisions/063-every-lane-over-all-workers.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

log = structlog.get_logger(__name__)

RETRY_S: Final = 1.0
"""Pause between attempts to join a group that has refused every assignor."""
SUSPECT_AFTER_S: Final = 120.0
"""An instance id in use for longer than any default session belongs to a live worker."""
_UNKNOWN: Final = "UNSUPPORTED_ASSIGNOR"
_OTHER_ASSIGNOR: Final = frozenset({_UNKNOWN, "INCONSISTENT_GROUP_PROTOCOL"})
_ID_IN_USE: Final = "UNRELEASED_INSTANCE_ID"
_ID_TAKEN: Final = "FENCED_INSTANCE_ID"
_JOINING: Final = "waiting for partitions"

Open = Callable[[str], Any]
"""Opens a Consumer that offers this assignor (empty: the broker's own)."""


class MemberFenced(RuntimeError):
    """Another worker took this one's instance id; the text names the remedy."""


class GroupMember:
    """Has the methods of a Consumer that the source needs. Belongs to the source's thread."""

    def __init__(
        self,
        open_consumer: Open,
        assignors: Sequence[str],
        *,
        epoch: Callable[[Any], int],
        refusal: Callable[[Any], str],
        wanted: str = "",
        instance_id: str = "",
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`assignors`: in the order of the offers. `wanted`: the configured assignor. `epoch`: a Consumer's
        member epoch, above 0 once it has joined. `refusal`: the name of the group's error."""
        self._open_consumer = open_consumer
        self._assignors = list(assignors)
        self._wanted = wanted
        self._instance_id = instance_id
        self._epoch = epoch
        self._refusal = refusal
        self._monotonic = monotonic
        self._sleep = sleep
        self._offered = 0
        self._joined = False
        self._reason = ""
        self._waiting_since: float | None = None
        self._suspected = False
        self._again_at = 0.0
        self._topics: list[str] = []
        self._callbacks: dict[str, Any] = {}
        self._on_refused: Callable[[], None] = _nothing
        if wanted and wanted not in self._assignors:
            self._say_assignor("this group protocol does not have it")
        self._consumer = self._opened()

    # ---- joining -----------------------------------------------------------------------------

    def subscribe(
        self, topics: Sequence[str], *, on_refused: Callable[[], None], **callbacks: Any
    ) -> None:
        """Joins for these topics. `on_refused` is called when the group refused the member: all partitions
        are lost at once. `callbacks` are the Consumer's."""
        self._topics = list(topics)
        self._callbacks = callbacks
        self._on_refused = on_refused
        self._consumer.subscribe(self._topics, **callbacks)

    def absence(self) -> str | None:
        """Returns why it is not in the group; None once it has joined, even without partitions."""
        if not self._joined and self._consumer is not None and self._epoch(self._consumer) > 0:
            self._joined = True
            if self._waiting_since is not None:
                waited = round(self._monotonic() - self._waiting_since, 1)
                log.info("instance_id_free", instance_id=self._instance_id, waited_s=waited)
            self._waiting_since, self._reason, self._suspected = None, "", False
        return None if self._joined else self._reason or _JOINING

    def poll(self, timeout_s: float) -> Any:
        """Returns a message; None without one, and while it waits to join. Raises MemberFenced."""
        if self._consumer is None and not self._opened_again(timeout_s):
            return None
        message = self._consumer.poll(timeout_s)
        return None if self._refused(message) else message

    def _opened(self) -> Any:
        return self._open_consumer(self._assignors[self._offered])

    def _opened_again(self, timeout_s: float) -> bool:
        left = self._again_at - self._monotonic()
        if left > 0:
            self._sleep(min(left, timeout_s))
            return False
        self._consumer = self._opened()
        self._consumer.subscribe(self._topics, **self._callbacks)
        return True

    def _refused(self, message: Any) -> bool:
        """Returns whether the group refused this Consumer, which is closed then."""
        error = message.error() if message is not None else None
        code = "" if error is None else self._refusal(error)
        if code in _OTHER_ASSIGNOR:
            self._offer_next(code)
        elif code == _ID_IN_USE:
            self._wait_for_id()
        elif code == _ID_TAKEN:
            raise MemberFenced(
                f"another worker joined as kafka.group_instance_id {self._instance_id!r}; "
                "give every worker one of its own"
            )
        else:
            return False
        return True

    def _offer_next(self, code: str) -> None:
        self._offered = (self._offered + 1) % len(self._assignors)
        refused_all = self._offered == 0
        if not self._reason:
            unknown = code == _UNKNOWN
            self._say_assignor("the broker does not have it" if unknown else "others use another")
        self._reason = f"the group {_refused_by(code)}"
        self._give_up(RETRY_S if refused_all else 0.0)

    def _say_assignor(self, why: str) -> None:
        log.warning(
            "assignor_refused",
            wanted=self._wanted or self._assignors[0],
            taken=self._assignors[self._offered] or "the broker's own",
            cause=why,
            what="a lane may be spread unevenly until all workers use one that spreads it",
        )

    def _wait_for_id(self) -> None:
        now = self._monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
            log.warning(
                "instance_id_in_use",
                instance_id=self._instance_id,
                what="it joins when the session of the member that has this id has ended",
            )
        elif now - self._waiting_since >= SUSPECT_AFTER_S and not self._suspected:
            self._suspected = True
            log.error(
                "instance_id_in_use",
                instance_id=self._instance_id,
                waited_s=round(now - self._waiting_since),
                what="a live worker seems to have this id; give every worker one of its own",
            )
        self._reason = (
            f"kafka.group_instance_id {self._instance_id!r} is still used by another member: "
            "waiting for its session to end"
        )
        self._give_up(RETRY_S)

    def _give_up(self, wait_s: float) -> None:
        """Drops the partitions, then closes the Consumer: its callbacks must commit nothing."""
        self._joined = False
        self._on_refused()
        refused, self._consumer = self._consumer, None
        refused.close()
        self._again_at = self._monotonic() + wait_s

    # ---- methods of a Consumer ---------------------------------------------------------------

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        """Returns up to `count` messages."""
        return self._consumer.consume(count, timeout_s) if self._consumer is not None else []

    def pause(self, places: Sequence[Any]) -> None:
        """Fetch nothing more of these partitions."""
        self._consumer.pause(places)

    def resume(self, places: Sequence[Any]) -> None:
        """Fetch these partitions again."""
        self._consumer.resume(places)

    def seek(self, place: Any) -> None:
        """Continues at this offset of a partition."""
        self._consumer.seek(place)

    def commit(self, *, offsets: Sequence[Any], asynchronous: bool) -> None:
        """Send a commit."""
        self._consumer.commit(offsets=offsets, asynchronous=asynchronous)

    def get_watermark_offsets(self, place: Any, **options: Any) -> tuple[int, int]:
        """Returns a partition's first offset and its end."""
        return self._consumer.get_watermark_offsets(place, **options)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Leave the group."""
        if self._consumer is not None:
            self._consumer.close()


def _refused_by(code: str) -> str:
    return "knows no assignor of ours" if code == _UNKNOWN else "uses another assignor"


def _nothing() -> None:
    """Does nothing: the callback before `subscribe`."""
