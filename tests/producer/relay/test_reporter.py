"""The relay tells of itself: heartbeat row, backlog in the metrics, alerts of parked and late rows."""

import threading

import pytest

from hongyan_client.outbox import RetryTerms
from hongyan_client.outbox.engine import outbox_engine
from hongyan_client.outbox.relay_rows import RelayRows
from hongyan_client.outbox.store import FailedRow, OutboxStore
from producer.relay.metrics import RelayMetrics
from producer.relay.relay import RelaySignals
from producer.relay.reporter import RelayReporter
from producer.relay.wakeups import Wakeups
from sending.alerts.notifier import Alert, AlertNotifier
from tests.hongyan_client.outbox.broker import Broker
from tests.hongyan_client.outbox.places import OutboxPlace
from tests.producer.relay.running import RelayRun


class Notifier(AlertNotifier):
    """Keeps what is raised."""

    def __init__(self, metrics: RelayMetrics) -> None:
        super().__init__(metrics.registry, 300)
        self.told: list[tuple[str, str, int]] = []

    def raise_(self, alert: Alert, count: int = 1, *, after: int = 0) -> None:
        self.told.append((alert.rule, alert.text, count))
        super().raise_(alert, count, after=after)


def reporter(
    rows: RelayRows, metrics: RelayMetrics, alerts: AlertNotifier, late_s: float = 60
) -> RelayReporter:
    return RelayReporter(
        rows,
        metrics,
        alerts,
        name="relay-1",
        table="hongyan_outbox",
        late_s=late_s,
        stop=threading.Event(),
    )


def test_a_parked_row_is_told_once_by_whichever_relay_sees_its_alert(
    sqlite_place: OutboxPlace,
) -> None:
    message_id = sqlite_place.add(retry=RetryTerms(attempts=1))
    run = RelayRun(sqlite_place.store, broker := Broker())
    broker.silent = True
    batch = sqlite_place.store.claim_due("dead", 1, 10)
    sqlite_place.end_lease(message_id)
    assert batch.rows
    run.step()
    alerts = Notifier(run.metrics)
    for _ in range(2):
        reporter(sqlite_place.rows, run.metrics, alerts).report("running")
    ((rule, text, count),) = alerts.told
    assert (rule, count) == ("outbox_parked", 1)
    assert message_id in text
    assert "hongyan outbox list --parked" in text
    assert run.count("relay_parked") == 1
    assert run.count("alerts_total", rule="outbox_parked", lane="") == 1


def test_an_alert_whose_relay_was_killed_before_it_told_it_is_told_by_the_next_one(
    sqlite_place: OutboxPlace,
) -> None:
    message_id = sqlite_place.add(retry=RetryTerms(attempts=1))
    batch = sqlite_place.store.claim_due("dead", 30_000, 10)
    failed = FailedRow(batch.rows[0], "no answer", False, None)
    assert sqlite_place.store.mark(batch.token, (), [failed]) == 0
    metrics = RelayMetrics("first")

    class Killed(Notifier):
        def flush(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reporter(sqlite_place.rows, metrics, Killed(metrics)).report("running")
    metrics = RelayMetrics("hongyan")
    alerts = Notifier(metrics)
    for _ in range(2):
        reporter(sqlite_place.rows, metrics, alerts).report("running")
    ((rule, text, _),) = alerts.told
    assert rule == "outbox_parked"
    assert message_id in text


def test_a_late_row_is_an_alert_that_counts_once_and_goes_on(sqlite_place: OutboxPlace) -> None:
    metrics = RelayMetrics("hongyan")
    alerts = Notifier(metrics)
    told = reporter(sqlite_place.rows, metrics, alerts)
    message_id = sqlite_place.add()
    told.report("running")
    assert alerts.told == []
    sqlite_place.set(message_id, "created_at = created_at - 61000")
    told.report("running")
    told.report("running")
    assert [(rule, count) for rule, _, count in alerts.told] == [
        ("outbox_late", 1),
        ("outbox_late", 0),
    ]
    (beat,) = sqlite_place.rows.heartbeats()
    assert (beat.name, beat.state, beat.pending) == ("relay-1", "running", 1)
    assert beat.oldest_ms >= 61_000


def test_a_backlog_that_nobody_can_measure_is_unknown_and_not_zero() -> None:
    metrics = RelayMetrics("hongyan")
    engine = outbox_engine("postgresql://nobody@127.0.0.1:1/none")
    rows = RelayRows(OutboxStore(engine), OutboxPlace("", engine).outbox.tables)
    reporter(rows, metrics, Notifier(metrics)).report("running")
    assert metrics.registry.get_sample_value("hongyan_relay_pending") == -1
    engine.dispose()


def test_a_commit_wakes_the_relay_on_postgresql(postgres_place: OutboxPlace) -> None:
    signals = RelaySignals(threading.Event(), threading.Event())
    listening = threading.Thread(target=Wakeups(postgres_place.store, signals).run, daemon=True)
    listening.start()
    woken = False
    for _ in range(40):  # until it listens; the first commits may come before
        postgres_place.add()
        if woken := signals.wake.wait(0.25):
            break
    signals.stop.set()
    listening.join(10)
    assert woken
    assert not listening.is_alive()


@pytest.mark.parametrize("asked", ["mysql", "oracle"])
def test_a_url_that_the_relay_cannot_use_is_refused_without_its_password(asked: str) -> None:
    if asked == "mysql":
        assert outbox_engine("mysql://u:p@h/d").url.drivername == "mysql+pymysql"
        return
    with pytest.raises(ValueError, match="oracle is not supported") as refused:
        outbox_engine("oracle://u:s3cret@h/d")
    assert "s3cret" not in str(refused.value)
