"""`hongyan relay` as processes, and what Kafka has in the end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from sqlalchemy import Connection, text

from tests.harness.fork_server import HONGYAN, Program, start
from tests.harness.stopped import stop
from tests.hongyan_client.outbox.places import OutboxPlace

WITHIN_S = 40.0
GATE = 7_261
"""The advisory lock that holds up marks."""


class RelayProcess:
    """One process; its log is JSON."""

    def __init__(self, place: OutboxPlace, bootstrap: str, prefix: str, log: Path) -> None:
        self.log = log
        url = place.engine.url.render_as_string(hide_password=False)
        environment = {
            **os.environ,
            "HONGYAN_KAFKA__BOOTSTRAP": bootstrap,
            "HONGYAN_KAFKA__TOPIC_PREFIX": prefix,
            "HONGYAN_RELAY__OUTBOX_URL": url,
            "HONGYAN_RELAY__HEALTH_ADDRESS": "127.0.0.1:0",
            "HONGYAN_LOG__FORMAT": "json",
        }
        with log.open("wb") as output:
            program = Program(HONGYAN, ["relay"], environment, str(log.parent))
            self.process = start(program, output.fileno(), output.fileno())
        until(lambda: "relay_started" in log.read_text() or self.process.poll() is not None)
        assert self.process.poll() is None, log.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def pause(self) -> None:
        """Stops the process. All of its threads stand still then."""
        stop(self.process.pid)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Ends it as an orchestrator does. Returns its exit code."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(WITHIN_S)

    def events(self) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line)["event"] for line in lines if line.startswith("{")]


def until(met: Callable[[], bool]) -> None:
    """Waits for something that other processes bring about."""
    deadline = time.monotonic() + WITHIN_S
    while not met():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


def make_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        future.result(20)


def read_ids(bootstrap: str, topic: str, enough: int) -> list[str]:
    """Returns the ids in the topic, in each partition's order, once there are so many."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-{time.time_ns()}",
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe([topic])
    found: list[str] = []
    deadline = time.monotonic() + WITHIN_S
    try:
        while len(found) < enough and time.monotonic() < deadline:
            record = reader.poll(0.2)
            if record is not None and record.error() is None:
                found.append(_id_of(record))
        while (more := reader.poll(0.5)) is not None:
            found.append(_id_of(more))
    finally:
        reader.close()
    return found


def _id_of(record: Message) -> str:
    found = dict(record.headers() or [])["hongyan-id"]
    assert isinstance(found, bytes)
    return found.decode()


@contextmanager
def marks_held_up(place: OutboxPlace) -> Iterator[Connection]:
    """Lets no row become SENT until the end: a trigger waits for a lock that this connection has."""
    with place.engine.begin() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION hold_marks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                f" PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NEW; END $$"
            )
        )
        connection.execute(
            text(
                "CREATE TRIGGER hold_marks BEFORE UPDATE ON hongyan_outbox FOR EACH ROW"
                " WHEN (NEW.state = 'SENT') EXECUTE FUNCTION hold_marks()"
            )
        )
    with place.engine.connect() as holder:
        holder.execute(text(f"SELECT pg_advisory_lock({GATE})"))
        holder.commit()
        try:
            yield holder
        finally:
            holder.execute(text(f"SELECT pg_advisory_unlock({GATE})"))
            holder.commit()
