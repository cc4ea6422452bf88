"""How the provider behaves: always a little ill, and by spells worse."""

from __future__ import annotations

from simulator import Faults, Simulator
from tests.chaos.kinds import Kind
from tests.chaos.plan import FICKLE_RECEIVER

LATENCY: str = "p50=10,p99=60"
MUTE = "/mute"
"""Path of the account whose provider never says what became of a call."""
SLOW, STALE, AGAIN, CUT_OFF, BEHIND = "slow-", "stale-", "again-", "cut-off-", "behind-"
"""What receivers that a fault brings along begin with."""
NOT_NOW = "425"
"""Refuses one call. A 429 would slow down the whole account."""
_USUAL = (
    Faults(method="GET", path=MUTE, errors={"503": 1.0}),
    Faults(
        receiver=FICKLE_RECEIVER,
        latency_ms=LATENCY,
        errors={"400": 0.002, "429": 0.002, "500": 0.002},
        reset=0.001,
    ),
    Faults(latency_ms=LATENCY),
)
_SPELLS = {
    Kind.RESETS: Faults(latency_ms=LATENCY, reset=0.3),
    Kind.ERRORS: Faults(latency_ms=LATENCY, errors={"500": 0.3}, accept_errors=True),
    Kind.HANGS: Faults(latency_ms=LATENCY, hang=0.15),
    Kind.LIMITS: Faults(latency_ms=LATENCY, errors={"429": 0.6}, retry_after="1"),
    Kind.DRAIN: Faults(latency_ms="900"),
    Kind.SLOW: Faults(receiver=SLOW, latency_ms="1800"),
    Kind.STALE: Faults(receiver=STALE, errors={NOT_NOW: 1.0}, retry_after="1"),
    Kind.MANUAL: Faults(receiver=AGAIN, errors={NOT_NOW: 1.0}, retry_after="1"),
    Kind.KILL_TAKE: Faults(receiver=AGAIN, errors={NOT_NOW: 1.0}),
    Kind.KILL_RESEND: Faults(receiver=AGAIN, errors={NOT_NOW: 1.0}),
    Kind.BACKLOG: Faults(receiver=BEHIND, errors={NOT_NOW: 1.0}, retry_after="1"),
    Kind.REDIS_AWAY: Faults(receiver=AGAIN, errors={NOT_NOW: 1.0}),
    Kind.NO_RECOVERY: Faults(receiver=AGAIN, errors={NOT_NOW: 1.0}),
    Kind.KILL_RESOLVE: Faults(receiver=CUT_OFF, reset=1.0),
}


class Weather:
    """Belongs to the driver's thread. The youngest spell decides first."""

    def __init__(self, provider: Simulator) -> None:
        self._provider = provider
        self._spells: list[tuple[int, Faults]] = []
        self._apply()

    def begin(self, number: int, kind: Kind) -> None:
        """The spell that goes with a fault, known by the fault's number."""
        self._spells.insert(0, (number, _SPELLS[kind]))
        self._apply()

    def end(self, number: int) -> None:
        """That spell is over."""
        self._spells = [spell for spell in self._spells if spell[0] != number]
        self._apply()

    def _apply(self) -> None:
        self._provider.control(rules=[*(rule for _, rule in self._spells), *_USUAL])
