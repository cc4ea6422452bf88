"""`hongyan lookback` on real Kafka and PostgreSQL: forwards, survives kill -9, drains on SIGTERM."""

import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from message.lookback import (
    RollbackRecord,
)
from tests.harness.waiting import await_
from tests.harness.wire import Wire
from tests.lookback.service import DIES, Business, committed, opened_business


@pytest.fixture
def business(
    topic_prefix: str, kafka_bootstrap: str, ledger_database: str, tmp_path: Path
) -> Iterator[Business]:
    with opened_business(topic_prefix, kafka_bootstrap, ledger_database, tmp_path) as business:
        yield business


def test_it_forwards_asks_and_drains_on_sigterm(business: Business) -> None:
    """Committed, rolled back, asked about, poison; then SIGTERM, and all offsets are committed."""
    business.states["paid"] = "COMMIT"
    one, two, three = (business.prepare(name) for name in ("1001", "1002", "paid"))
    fields = (two.biz_type, two.biz_id, two.tx_id)
    back = RollbackRecord(biz_type=fields[0], biz_id=fields[1], tx_id=fields[2])
    early = business.prepare("1003")
    with business.running() as (process, health):
        business.send(one, committed(one), two, back, three, committed(early), early)
        producer = Producer({"bootstrap.servers": business.bootstrap})
        producer.produce(f"{business.prefix}.look_back_msg", b"no record")
        producer.flush(10)
        await_(lambda: business.state("paid") == "FORWARDED", what="the check's commit")
        await_(lambda: business.state("1001") == "FORWARDED", what="the commit")
        await_(lambda: business.state("1003") == "FORWARDED", what="the early commit")
        assert business.state("1002") == "ROLLED_BACK"
        await_(lambda: len(business.wire.dead_letters()) == 1, what="the dead letter")
        assert urlopen(f"http://{health}/healthz").status == 200
        assert urlopen(f"http://{health}/readyz").status == 200
        page = urlopen(f"http://{health}/metrics").read().decode()
        assert 'hongyan_lookback_checks_total{answer="COMMIT",biz_type="order"} 1.0' in page
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    keys = sorted(message.key() for message in business.arrived())
    assert keys == [b"1001", b"1003", b"paid"]
    wire = Wire(business.bootstrap, business.prefix, f"{business.prefix}-lookback")
    topic = f"{business.prefix}.look_back_msg"
    positions = {place: one.offset for place, one in wire.committed([topic]).items()}
    assert positions.items() >= {p: end for p, end in wire.ends(topic).items() if end}.items()
    wire.close()


def test_killed_between_produce_and_mark_the_same_message_goes_again(business: Business) -> None:
    """Invariant 4."""
    one = business.prepare("1001")
    with business.running(DIES) as (process, _):
        business.send(one, committed(one))
        assert process.wait(30) == -signal.SIGKILL
    assert business.state("1001") == "COMMITTED"
    with business.running(), business.running():
        await_(lambda: business.state("1001") == "FORWARDED", what="the second forward")
    first, second = business.arrived()
    assert first.key() == second.key() == b"1001"
    assert first.partition() == second.partition()
    assert first.value() == second.value() == b"body"
    assert first.headers() == second.headers() == [("hongyan-tx-id", one.tx_id.encode())]
