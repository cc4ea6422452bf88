"""From a worker's settlements to the table: nothing is lost while the database is away, nothing twice."""

from typing import Any

import pytest

from dispatcher.metrics import Metrics
from dispatcher.pipeline.telemetry import WorkerTelemetry
from idempotency.ledger import LedgerUnavailable, Settlement
from idempotency.sql_ledger import SqlLedger
from idempotency.sums.counter import MINUTE_MS, MinuteSums, SumRow
from idempotency.sums.reading import SumReader
from idempotency.sums.sketch import bucket_of
from idempotency.sums.store import SumStore
from message.states import Event
from sending.runtime.clock import Clock
from sending.sum_writer import SumUpkeep, SumWriter
from tests.dispatcher.fakes import NOW_MS
from tests.dispatcher.pipeline.test_telemetry import Kept, called_twice
from tests.idempotency.making import NOON, World

SMS = ("sms.notice", "main", "SENT")


class Weather:
    """A store whose database may be away, or may lose its reply."""

    def __init__(self, store: SumStore) -> None:
        self.store = store
        self.away = self.reply_lost = False
        self.writes = 0

    def put(self, process: str, rows: list[SumRow]) -> None:
        self.writes += 1
        if self.away:
            raise LedgerUnavailable("the server is away")
        self.store.put(process, rows)
        if self.reply_lost:
            raise LedgerUnavailable("the reply was lost")


@pytest.fixture
def weather(ledger: SqlLedger) -> Any:
    return Weather(ledger.sums())


def deliveries_of(ledger: SqlLedger) -> int:
    reader = SumReader(ledger.database, ledger.sums().clock)
    return sum(row.deliveries for row in reader.last(60 * MINUTE_MS).rows)


def test_settlements_of_a_worker_come_into_the_table(ledger: SqlLedger, world: World) -> None:
    metrics, work = Metrics(), called_twice()
    work.record.received_at, work.claimed_at = NOW_MS - 30, NOW_MS - 20
    work.started_at = NOW_MS - 10
    clock = Clock(lambda: 0.0, lambda: world.now / 1_000)
    report = WorkerTelemetry(Kept(), metrics, clock=clock, worker="w1")
    sent = (work, Settlement(work.delivery, Event.ACCEPTED, provider_id="p-1"))
    report.settled([sent, sent, sent], [True, False, True], 0.1)
    report.best_effort(*sent)
    SumWriter(metrics.sums, ledger.sums(), "w1").write()
    columns = "minute, lane, account, outcome, deliveries, total, intake, queue, call"
    created_to_sent = NOW_MS + 9 - work.delivery.notification.created_at
    assert world.rows(f"SELECT {columns} FROM minute_sums") == [
        (
            *(NOON // MINUTE_MS * MINUTE_MS, work.delivery.lane, "b", "SENT", 3),
            *(f"[{bucket_of(created_to_sent)},3]", "[10,3]", "[10,3]", "[19,3]"),
        )
    ], "a fenced settlement is not counted"


def test_sums_wait_while_the_database_is_away(ledger: SqlLedger, weather: Any) -> None:
    sums = MinuteSums()
    writer = SumWriter(sums, weather, "w1")
    weather.away = True
    sums.add(NOON, [SMS] * 3)
    assert not writer.write()
    sums.add(NOON, [SMS])
    assert not writer.write()
    weather.away = False
    assert writer.write()
    assert deliveries_of(ledger) == 4


def test_a_write_without_a_reply_is_repeated_and_counts_once(
    ledger: SqlLedger, weather: Any
) -> None:
    sums = MinuteSums()
    writer = SumWriter(sums, weather, "w1")
    sums.add(NOON, [SMS] * 3)
    weather.reply_lost = True
    assert not writer.write()
    weather.reply_lost = False
    sums.add(NOON, [SMS])
    assert writer.write()
    assert deliveries_of(ledger) == 4


def test_a_restarted_process_of_the_same_name_adds_to_its_minute(ledger: SqlLedger) -> None:
    for _life in range(2):
        sums = MinuteSums()
        sums.add(NOON, [SMS])
        SumWriter(sums, ledger.sums(), "w1").write()
    assert deliveries_of(ledger) == 2


def test_the_end_writes_the_rest_but_does_not_wait_for_a_database_that_is_away(
    ledger: SqlLedger, weather: Any
) -> None:
    sums = MinuteSums()
    writer = SumWriter(sums, weather, "w1")
    sums.add(NOON, [SMS])
    writer.close()
    assert deliveries_of(ledger) == 1
    weather.away = True
    sums.add(NOON, [SMS])
    writer.write()
    writes = weather.writes
    writer.close()
    assert weather.writes == writes


def test_one_process_rolls_up_and_the_next_takes_over(ledger: SqlLedger, world: World) -> None:
    duties, rounds = ledger.duties(), list[str]()

    class Rollup:
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self) -> int:
            rounds.append(self.name)
            return 0

        def forget(self) -> None:
            rounds.append(f"{self.name} forgets")

    def upkeep(name: str) -> SumUpkeep:
        made: Any = Rollup(name)
        return SumUpkeep(made, lambda duty, lease_ms: duties.hold(duty, name, lease_ms))

    first, second = upkeep("r1"), upkeep("r2")
    for _ in range(4):
        first()
        second()
    assert rounds == ["r1", "r1 forgets", "r1"]
    world.advance(10 * MINUTE_MS)
    for _ in range(3):
        second()
    assert rounds[-1] == "r2"


def test_old_sums_are_removed_in_pieces_until_none_is_left() -> None:
    left, calls = [True, True, False, False], list[str]()

    class Rollup:
        def run(self) -> int:
            calls.append("run")
            return 0

        def forget(self) -> bool:
            calls.append("forget")
            return left.pop(0)

    made: Any = Rollup()
    upkeep = SumUpkeep(made, lambda _duty, _lease_ms: True)
    for _ in range(12):
        upkeep()
    assert calls == ["run", "forget"] * 3 + ["run"]
