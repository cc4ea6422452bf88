"""A client with a spool before a cluster that stops answering: each notification is safe, and in order."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from backends.kafka.embedded import PARTITIONS, EmbeddedKafka
from hongyan_client import BufferLimits, Client, ClientOptions, Composition, Notification, compose
from hongyan_client.spool import spool as spool_module
from hongyan_client.spool.spool import Spool
from message.envelope import decode
from tests.hongyan_client.looking import NOWHERE, contents, paused

KEYS, COUNT, MANY = 8, 240, 3_000
TOPIC = "hongyan.dispatch.sms.notice"
OPTIONS = ClientOptions(
    trace=False, deadline_s=0.5, delivery_timeout_s=2.0, limits=BufferLimits(records=40)
)


def records_in(bootstrap: str) -> int:
    """Returns the number of records, repeats among them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=30)
            for number in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    return sum(end[1] for end in ends)


def notice(number: int) -> Notification:
    more = Composition(id=f"n-{number}", ordering_key=f"k{number % KEYS}")
    return compose("sms.notice", ["+8613800000001"], content={"n": number}, more=more)


def test_a_process_that_ends_without_close_leaves_all_in_the_spool(tmp_path: Path) -> None:
    program = f"""
from functools import partial
from hongyan_client import Client, ClientOptions, compose, core
from hongyan_client.spool.spool import Spool

core.EXIT_S = 0.5
options = ClientOptions(trace=False)
client = Client({NOWHERE!r}, options=options, overflow=partial(Spool, {str(tmp_path / "spool")!r}))
for number in range({MANY}):
    client.send(compose("sms.notice", ["+8613800000001"], content={{"n": number}}))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, stderr=subprocess.PIPE, text=True
    )
    with closing(sqlite3.connect(tmp_path / "spool" / "spool.db")) as file:
        assert file.execute("SELECT count(*) FROM records").fetchone() == (MANY,)
    assert "the process ends" not in ended.stderr


def test_an_outage_costs_no_notification_and_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "LONGEST_PAUSE_S", 0.2)
    with EmbeddedKafka(topics=[TOPIC]) as cluster:
        spool = partial(Spool, tmp_path / "spool")
        client = Client(cluster.bootstrap, options=OPTIONS, overflow=spool)
        ends = [client.send(notice(number)) for number in range(40)]
        with paused(cluster):
            ends += [client.send(notice(number)) for number in range(40, COUNT - 20)]
            results = [one.result(60) for one in ends]
            assert sum(one.is_spooled for one in results) >= COUNT - 100
        ends = [client.send(notice(number)) for number in range(COUNT - 20, COUNT)]
        assert all(one.result(60) for one in ends)
        client.flush(30)
        overflow = client._core._overflow
        assert isinstance(overflow, Spool)
        assert overflow.drain(60) == 0
        client.close(10)
        records = contents(cluster.bootstrap, TOPIC, records_in(cluster.bootstrap))
        found = [decode(one.value()) for one in records]
    assert {one.id for one in found} == {f"n-{number}" for number in range(COUNT)}
    for key in range(KEYS):
        numbers = [int(one.id[2:]) for one in found if one.ordering_key == f"k{key}"]
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first)
