"""A shop that consumes outcome events beside another writer of the same rows, and is killed in the middle.

    python examples/optimistic/run.py

It starts a Kafka of its own, a shop's database (SQLite) and 60 orders. Each order gets three events: SENT,
DELIVERED, and DELIVERED once more, as after a crash. Two processes change the orders: `cashier` books
payments, `consumer` applies the events. Twice the consumer kills itself between its database's commit and
Kafka's, and is started again. In the end each order was told once, and no payment is missing.
docs/consumers.md has the reasons.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from confluent_kafka import Consumer

from backends.kafka.embedded import EmbeddedKafka
from hongyan_client.consumer.event_order import EventEnd, supersedes
from hongyan_client.consumer.inbox import EventInbox, InboxStatus, VersionedRow
from hongyan_client.publisher import Publisher
from hongyan_client.records import Record
from message.outcome_event import event_id_of

TOPIC = "hongyan.outcomes"
ORDERS_COUNT, PAYMENTS = 60, 5
KILL_AFTER = 40
"""Events after which the consumer kills itself, in its first two lives."""
POLL_S, WHOLE_S = 0.2, 60
ORDERS = sa.Table(
    "orders",
    sa.MetaData(),
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("paid", sa.Integer, nullable=False),
    sa.Column("told", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("ended_at", sa.BigInteger, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
)


def main() -> int:
    """Runs the whole. Returns 0 if nothing was lost or doubled."""
    if len(sys.argv) > 1:
        return _ROLES[sys.argv[1]](*sys.argv[2:])
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        url = f"sqlite:///{Path(folder) / 'shop.db'}"
        shop = shop_of(url)
        EventInbox(shop).applied.create(shop)
        ORDERS.create(shop)
        with shop.begin() as connection:
            connection.execute(ORDERS.insert(), [a_new_order(n) for n in range(ORDERS_COUNT)])
        announce(kafka.bootstrap)
        cashier = start("cashier", url)
        lives = 0
        while start("consumer", url, kafka.bootstrap, str(int(lives < 2))).wait(WHOLE_S):
            lives += 1
            print(f"the consumer was killed after {KILL_AFTER} events, before Kafka's commit")
        if cashier.wait(WHOLE_S):
            return 1
        return judge(shop)


def shop_of(url: str) -> sa.Engine:
    """Returns the shop's database; its writers wait for each other."""
    return sa.create_engine(url, connect_args={"timeout": 30})


def a_new_order(number: int) -> dict[str, Any]:
    return {"id": f"order-{number}", "paid": 0, "told": 0, "state": "", "ended_at": 0, "version": 1}


def announce(bootstrap: str) -> None:
    """Produces the events as Hongyan does: each at least once."""
    publisher = Publisher(bootstrap, client_id="example")
    for number in range(ORDERS_COUNT):
        key = f"{number:032x}"
        sent = an_event(number, key, "SENT", 2, 1_000)
        delivered = an_event(number, key, "DELIVERED", 3, 2_000)
        for event in random.sample([sent, delivered, delivered], 3):  # no order, and a repeat
            record = Record(TOPIC, event["biz_id"].encode(), json.dumps(event).encode())
            publisher.publish(record, 10)
    if publisher.flush(30):
        raise SystemExit("Kafka did not take the events")
    publisher.close(5)


def an_event(number: int, key: str, state: str, version: int, at: int) -> dict[str, Any]:
    event_id = event_id_of(key, state, version)
    return {"event_id": event_id, "biz_id": f"order-{number}", "state": state, "ended_at": at}


def start(*role: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, __file__, *role], env=environment)


# ---- the two writers -------------------------------------------------------------------------


def cashier(url: str) -> int:
    """Books payments, and raises the version of each row that it changes, as every writer must."""
    shop = shop_of(url)
    for _ in range(PAYMENTS):
        for number in range(ORDERS_COUNT):
            booked = {"paid": ORDERS.c.paid + 1, "version": ORDERS.c.version + 1}
            with shop.begin() as connection:
                connection.execute(
                    sa.update(ORDERS).where(ORDERS.c.id == f"order-{number}").values(booked)
                )
    return 0


def consumer(url: str, bootstrap: str, dies: str) -> int:
    """Applies events until none came for a while. Offsets are committed after the database."""
    inbox = EventInbox(shop_of(url))
    kafka = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "shop", "enable.auto.commit": False}
        | {"auto.offset.reset": "earliest", "session.timeout.ms": 6_000, "log_level": 0}
    )
    kafka.subscribe([TOPIC])
    done = quiet = 0
    while quiet < (20 / POLL_S if not done else 2 / POLL_S):
        message = kafka.poll(POLL_S)
        if message is None or message.error() is not None:
            quiet += 1
            continue
        quiet = 0
        apply(inbox, json.loads(message.value() or b""))
        done += 1
        if dies == "1" and done == KILL_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)
        kafka.commit(message=message, asynchronous=False)
    kafka.close()
    return 0


def apply(inbox: EventInbox, event: Mapping[str, Any]) -> InboxStatus:
    new = EventEnd(event["state"], event["ended_at"])

    def change(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        known = EventEnd(row["state"], row["ended_at"]) if row["state"] else None
        if not supersedes(new, known):
            return None
        told = row["told"] + (new.state == "DELIVERED")
        return {"state": new.state, "ended_at": new.ended_at, "told": told}

    return inbox.apply(event["event_id"], VersionedRow(ORDERS, "id", event["biz_id"]), change)


# ---- the judge -------------------------------------------------------------------------------


def judge(shop: sa.Engine) -> int:
    with shop.begin() as connection:
        rows = connection.execute(sa.select(ORDERS)).all()
    told_once = sum(row.told == 1 and row.state == "DELIVERED" for row in rows)
    paid = sum(row.paid == PAYMENTS for row in rows)
    print(f"{told_once} of {len(rows)} orders were told once, {paid} have all their payments")
    return 0 if told_once == paid == ORDERS_COUNT else 1


_ROLES: Mapping[str, Callable[..., int]] = {"cashier": cashier, "consumer": consumer}

if __name__ == "__main__":
    sys.exit(main())
