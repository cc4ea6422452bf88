"""`hongyan send --wait` on the command line; the ledger knows the ends before the send.

tests/integration/test_send_wait.py has it beside a real worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.kafka import clients
from backends.settings import DatabaseSettings, KafkaSettings, Settings
from hongyan.errors import WrongUsage
from hongyan.flags import seconds
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.states import Event
from tests.hongyan.conftest import Run, make_ledger
from tests.idempotency.making import claimed, deliveries, settle, worker

FLAGS = ("send", "--lane", "sms.notice", "--content", '{"text": "hello"}')
ONE, TWO = "+8613800000001", "+8613800000002"


@pytest.fixture
def ledger(folder: Path, hongyan: Run) -> Iterator[SqlLedger]:
    make_ledger()
    settings = Settings(database=DatabaseSettings(url="sqlite:///hongyan.db"), base=str(folder))
    ledger = open_ledger(settings)
    ledger.register(worker("w1"))
    yield ledger
    ledger.close()


def ended(ledger: SqlLedger, name: str, *ends: tuple[str, Event]) -> list[str]:
    """Puts a message into the ledger whose receivers ended so. Returns its delivery keys."""
    made = deliveries(id=name, receivers=[receiver for receiver, _ in ends])
    for item, (_, event) in zip(claimed(ledger, *made), ends, strict=True):
        settle(ledger, item, event, reason=None if event is Event.ACCEPTED else "code_7")
    return [item.key for item in made]


def topic_ends(bootstrap: str, topic: str) -> int:
    """Returns how many records a topic has had."""
    client = clients.admin(KafkaSettings(bootstrap=bootstrap))
    partitions = client.list_topics(topic, timeout=10).topics[topic].partitions
    member = clients.consumer(
        KafkaSettings(bootstrap=bootstrap, group_id="ends"), protocol="classic"
    )
    places = [clients.TopicPartition(topic, number) for number in partitions]
    found = sum(member.get_watermark_offsets(place, timeout=10)[1] for place in places)
    member.close()
    return found


def test_every_delivery_arrived(hongyan: Run, kafka: str, ledger: SqlLedger) -> None:
    keys = ended(ledger, "m1", (ONE, Event.ACCEPTED), (TWO, Event.ACCEPTED))
    said = hongyan(*FLAGS, "--to", ONE, "--to", TWO, "--id", "m1", "--wait", "20")
    assert (said.code, said.err) == (0, "")
    first, *middle, last = said.out.splitlines()
    assert first.startswith("sent m1")
    assert [key for line in middle for key in keys if key in line] == [*keys, *keys]
    assert [line.count("SENT") for line in middle] == [0, 0, 1, 1]
    assert last == "2 of 2 arrived"
    assert ONE not in said.out, "receivers are masked"


@pytest.mark.parametrize("flag", [["--wait"], ["--wait=20"], ["--wait", "20s"]])
def test_the_seconds_may_be_left_out(
    hongyan: Run, kafka: str, ledger: SqlLedger, flag: list[str]
) -> None:
    ended(ledger, "m1", (ONE, Event.ACCEPTED))
    assert hongyan(*FLAGS, "--id", "m1", *flag, "--to", ONE).code == 0
    assert hongyan(*FLAGS, "--id", "m1", "--to", ONE, *flag).code == 0


def test_one_that_did_not_arrive_is_shown_and_exits_1(
    hongyan: Run, kafka: str, ledger: SqlLedger
) -> None:
    ended(ledger, "m1", (ONE, Event.ACCEPTED), (TWO, Event.REJECTED))
    flags = (*FLAGS, "--to", ONE, "--to", TWO, "--id", "m1", "--wait", "20")
    said = hongyan(*flags)
    assert said.code == 1
    assert "REJECTED (code_7)" in said.out
    assert said.out.endswith("1 of 2 arrived\n")
    told = hongyan(*flags, "--json")
    assert told.code == 1
    found = {one["receiver"]: (one["state"], one["arrived"]) for one in told.json["deliveries"]}
    assert found == {"+86138***0001": ("SENT", True), "+86138***0002": ("REJECTED", False)}
    assert told.json["notifications"][0]["id"] == "m1"


def test_the_time_passes_for_one_that_stays_open(
    hongyan: Run, kafka: str, ledger: SqlLedger
) -> None:
    ended(ledger, "m1", (ONE, Event.UNKNOWN))
    said = hongyan(*FLAGS, "--to", ONE, "--id", "m1", "--wait", "0.3")
    assert said.code == 1
    assert "UNKNOWN (code_7)" in said.out
    assert "not decided within 0.3 s: `hongyan trace m1` shows it later" in said.err


def test_one_that_no_worker_takes_names_its_lane(
    hongyan: Run, kafka: str, ledger: SqlLedger
) -> None:
    said = hongyan(*FLAGS, "--to", ONE, "--wait", "0.3")
    assert said.code == 1
    assert "not in the ledger" in said.out
    assert "no worker has taken up sms.notice within 0.3 s" in said.err


def test_nothing_is_sent_if_the_wait_is_not_possible(
    hongyan: Run, kafka: str, folder: Path
) -> None:
    topic = "hongyan.dispatch.sms.marketing"
    flags = ("send", "--lane", "sms.marketing", "--to", ONE, "--content", "{}")
    assert hongyan(*flags).code == 0
    before = topic_ends(kafka, topic)
    said = hongyan(*flags, "--wait")
    assert said.code == 2
    assert "there is no ledger" in said.err
    make_ledger()
    (folder / "policy.toml").write_text('[lanes."sms.marketing"]\nguarantee = "best_effort"\n')
    said = hongyan(*flags, "--wait")
    assert said.code == 2
    assert "lane sms.marketing is best_effort" in said.err
    assert hongyan(*flags, "--check", "--wait").code == 2
    assert topic_ends(kafka, topic) == before


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "1e9", "5 min"])
def test_a_wrong_duration_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="--wait"):
        seconds("--wait", text)


def test_durations_are_seconds_or_have_a_unit() -> None:
    assert [seconds("--wait", text) for text in ("30", "0.5", "30s", "2m", "1h")] == [
        *(30.0, 0.5, 30.0, 120.0, 3_600.0)
    ]
