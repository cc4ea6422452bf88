"""A ledger that is away when the relay starts is tried again."""

from __future__ import annotations

import threading

import pytest

from idempotency.ledger import LedgerUnavailable
from producer.relay.ledger import RelayLedger
from producer.relay.metrics import RelayMetrics
from sending.alerts.notifier import Alert, AlertNotifier

WITHIN_S = 20.0


class Windows:
    """The fleet's windows of alerts; they keep what was noted and give nothing to send."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def note(self, raised, window_ms, by):  # type: ignore[no-untyped-def]
        self.noted += [one.rule for one in raised]
        return []

    def upkeep(self, window_ms, clear_ms, by):  # type: ignore[no-untyped-def]
        return []

    def claim_post(self, lease_ms):  # type: ignore[no-untyped-def]
        return None

    def posted(self, post):  # type: ignore[no-untyped-def]
        """Keeps nothing."""

    def not_posted(self, post, error):  # type: ignore[no-untyped-def]
        """Keeps nothing."""


class Ledger:
    """A ledger that was opened."""

    def __init__(self) -> None:
        self.windows = Windows()
        self.beats = threading.Event()
        self.ends: list[str] = []

    def alerting(self) -> Windows:
        return self.windows

    def close(self) -> None:
        self.ends.append("ledger")

    def beat(self, _ledger: Ledger) -> object:
        self.beats.set()
        return lambda: self.ends.append("heartbeat")


class AwayAtFirst:
    """Opens the ledger at the third try, unless it stays away."""

    def __init__(self, ledger: Ledger, *, stays_away: bool = False) -> None:
        self.ledger = ledger
        self.stays_away = stays_away
        self.tries = 0

    def __call__(self) -> Ledger:
        self.tries += 1
        if self.stays_away or self.tries < 3:
            raise LedgerUnavailable("connection refused")
        return self.ledger


def test_a_ledger_that_is_away_at_the_start_gets_the_heartbeat_when_it_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger = Ledger()
    away = AwayAtFirst(ledger)
    beside = RelayLedger(away, ledger.beat, every_s=0.01)  # type: ignore[arg-type]
    beside.start()
    assert ledger.beats.wait(WITHIN_S)
    beside.close()
    assert away.tries == 3
    assert ledger.ends == ["heartbeat", "ledger"]
    assert capsys.readouterr().out.count("relay_without_ledger") == 1


def test_alerts_go_by_the_process_s_own_window_until_the_ledger_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger = Ledger()
    away = AwayAtFirst(ledger, stays_away=True)
    beside = RelayLedger(away, ledger.beat, every_s=0.01)  # type: ignore[arg-type]
    beside.start()
    notifier = AlertNotifier(RelayMetrics("hongyan").registry, 600.0, windows=beside)
    notifier.raise_(Alert("outbox_parked", "", "hongyan_outbox", "m-1"))
    notifier.flush()
    assert "outbox_parked" in capsys.readouterr().out
    away.stays_away = False
    assert ledger.beats.wait(WITHIN_S)
    notifier.raise_(Alert("outbox_late", "", "hongyan_outbox", "late"))
    notifier.flush()
    assert "outbox_late" in ledger.windows.noted
    beside.close()


def test_a_relay_ends_while_its_ledger_is_away() -> None:
    ledger = Ledger()
    away = AwayAtFirst(ledger, stays_away=True)
    beside = RelayLedger(away, ledger.beat, every_s=300.0)  # type: ignore[arg-type]
    beside.start()
    beside.close()
    assert away.tries == 1
    assert ledger.ends == []


def test_a_ledger_that_answers_at_once_needs_no_thread() -> None:
    ledger = Ledger()
    beside = RelayLedger(lambda: ledger, ledger.beat)  # type: ignore[arg-type, return-value]
    beside.start()
    assert ledger.beats.is_set()
    assert "ledger" not in {thread.name for thread in threading.enumerate()}
    beside.close()
