"""A shop that writes orders and notifications in one transaction, and is killed in the middle.

    python examples/outbox/run.py

It starts a Kafka of its own, a shop's database (SQLite), and two processes. `shop` takes 40 orders, each
with a notification in its transaction. `hongyan relay` publishes. The shop kills itself between insert and
commit, and right after a commit. Some orders it rolls back. The relay is killed, too. In the end Kafka has
a notification for each order that was committed, and none for any other. docs/outbox.md has the reasons.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import sqlalchemy as sa
from confluent_kafka import Consumer
from sqlalchemy.orm import Session

from backends.kafka.embedded import EmbeddedKafka
from hongyan_client.outbox import Outbox
from hongyan_client.outbox.tables import SENT

TOPIC = "hongyan.dispatch.sms.notice"
ORDERS_COUNT = 40
DIES_BEFORE_COMMIT, DIES_AFTER_COMMIT = (7, 23), (15, 31)
"""Orders at which the shop kills itself, in its first life that comes to them."""
WHOLE_S = 60
METADATA = sa.MetaData()
ORDERS = sa.Table("orders", METADATA, sa.Column("number", sa.Integer, primary_key=True))
ATTEMPTS = sa.Table("attempts", METADATA, sa.Column("number", sa.Integer, primary_key=True))
OUTBOX = Outbox(metadata=METADATA)


def main() -> int:
    """Runs the whole. Returns 0 if nothing was lost, and nothing came of a rollback."""
    if len(sys.argv) > 1:
        return shop(sys.argv[1])
    topics = [TOPIC]
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(topics=topics) as kafka:
        url = f"sqlite:///{Path(folder) / 'shop.db'}"
        METADATA.create_all(engine_of(url))
        relay = start_relay(url, kafka.bootstrap, folder)
        while start([sys.executable, __file__, url]).wait(WHOLE_S):
            print("the shop was killed; it starts again")
        relay.kill()
        relay.wait()
        print("the relay was killed; another one starts")
        relay = start_relay(url, kafka.bootstrap, folder)
        await_sent(url)
        relay.terminate()
        relay.wait(WHOLE_S)
        return judge(url, kafka.bootstrap)


def engine_of(url: str) -> sa.Engine:
    """Returns the shop's database; its writers wait for each other."""
    return sa.create_engine(url, connect_args={"timeout": 30})


def start(command: list[str], folder: str = ".", **more: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **more}
    return subprocess.Popen(command, env=environment, cwd=folder)


def start_relay(url: str, bootstrap: str, folder: str) -> subprocess.Popen[bytes]:
    return start(
        [sys.executable, "-c", "from hongyan.program import main; main()", "relay"],
        folder,
        HONGYAN_KAFKA__BOOTSTRAP=bootstrap,
        HONGYAN_RELAY__OUTBOX_URL=url,
        HONGYAN_RELAY__POLL_S="0.1",
        HONGYAN_RELAY__LEASE_S="5",
        HONGYAN_RELAY__HEALTH_ADDRESS="127.0.0.1:0",
        HONGYAN_LOG__LEVEL="error",
    )


def shop(url: str) -> int:
    """Takes the orders that are not taken yet. Each fifth is rolled back for good."""
    engine = engine_of(url)
    for number in range(ORDERS_COUNT):
        with Session(engine) as session:
            if is_taken(session, number):
                continue
            is_first = note_attempt(engine, number)
            session.execute(ORDERS.insert(), {"number": number})
            OUTBOX.add(session, notification(number))
            if number % 5 == 0:
                session.rollback()
                continue
            if is_first and number in DIES_BEFORE_COMMIT:
                os.kill(os.getpid(), signal.SIGKILL)
            session.commit()
            if is_first and number in DIES_AFTER_COMMIT:
                os.kill(os.getpid(), signal.SIGKILL)
    return 0


def is_taken(session: Session, number: int) -> bool:
    found = session.execute(sa.select(ORDERS).where(ORDERS.c.number == number)).first()
    session.rollback()
    return found is not None


def note_attempt(engine: sa.Engine, number: int) -> bool:
    """Returns whether nobody tried this order before."""
    with engine.begin() as connection:
        known = connection.execute(sa.select(ATTEMPTS).where(ATTEMPTS.c.number == number)).first()
        if known is None:
            connection.execute(ATTEMPTS.insert(), {"number": number})
    return known is None


def notification(number: int) -> dict[str, object]:
    return {
        "id": f"order-{number}",
        "channel": "sms",
        "kind": "notice",
        "receivers": ["+8613800000001"],
        "template": {"id": "order-shipped", "params": {"order": str(number)}},
    }


def await_sent(url: str) -> None:
    """Waits until every row has gone."""
    engine, state = engine_of(url), OUTBOX.tables.rows.c.state
    deadline = time.monotonic() + WHOLE_S
    while time.monotonic() < deadline:
        with engine.begin() as connection:
            waiting = sa.select(sa.func.count()).where(state != SENT)
            if not connection.execute(waiting).scalar_one():
                return
        time.sleep(0.1)


def judge(url: str, bootstrap: str) -> int:
    with engine_of(url).begin() as connection:
        committed = {f"order-{one}" for one in connection.execute(sa.select(ORDERS)).scalars()}
    came = Counter(read_ids(bootstrap))
    lost, invented = committed - came.keys(), came.keys() - committed
    repeats = came.total() - len(came)
    print(
        f"{len(committed)} orders were committed: {len(lost)} notifications lost, {len(invented)} of"
        f" orders that were rolled back, {repeats} sent twice with the same id"
    )
    return 1 if lost or invented or not committed else 0


def read_ids(bootstrap: str) -> list[str]:
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "auto.offset.reset": "earliest"}
        | {"log_level": 0}
    )
    reader.subscribe([TOPIC])
    found: list[str] = []
    quiet = 0
    while quiet < (100 if not found else 20):
        record = reader.poll(0.1)
        if record is None or record.error() is not None:
            quiet += 1
            continue
        message_id = dict(record.headers() or [])["hongyan-id"]
        found.append(message_id.decode() if isinstance(message_id, bytes) else str(message_id))
        quiet = 0
    reader.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
