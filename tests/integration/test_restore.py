"""docs/backup.md: a ledger goes back to an earlier time, and the group's offsets follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.harness import Fleet, notifications
from tests.harness.databases import connected, copy_database

MakeFleet = Callable[..., Fleet]
_ASK_S = 10.0


@contextmanager
def restored(fleet: Fleet) -> Iterator[None]:
    """Copies the ledger, and puts the copy in its place after the block. No process runs at either time."""
    server, _, name = fleet.ground.database_url.rpartition("/")
    copy = f"{name}_backup"
    with connected(f"{server}/postgres") as connection:
        copy_database(connection, name, copy)
        yield
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
        connection.execute(f'ALTER DATABASE "{copy}" RENAME TO "{name}"'.encode())


def set_back(fleet: Fleet, at_ms: int) -> None:
    """Sets the group's offsets to that time, as `kafka-consumer-groups.sh --to-datetime` does."""
    admin = AdminClient({"bootstrap.servers": fleet.ground.bootstrap})
    places = [TopicPartition(place.topic, place.partition) for place in fleet.committed()]
    asked = admin.list_offsets(dict.fromkeys(places, OffsetSpec.for_timestamp(at_ms)))
    found = [(place, done.result(_ASK_S).offset) for place, done in asked.items()]
    wanted = [TopicPartition(p.topic, p.partition, offset) for p, offset in found if offset >= 0]
    group = ConsumerGroupTopicPartitions(fleet.wire.group, wanted)
    for done in admin.alter_consumer_group_offsets([group]).values():
        done.result(_ASK_S)


def drained(fleet: Fleet) -> None:
    """Lets one worker send everything, and stops it."""
    worker = fleet.worker().wait_ready()
    fleet.await_settled()
    fleet.await_committed()
    assert worker.stop() == 0


def test_after_a_restore_offsets_go_back_and_only_forgotten_deliveries_go_again(
    fleet: MakeFleet,
) -> None:
    one = fleet(partitions=2)
    before, after = notifications(10), notifications(10)
    one.send(before)
    drained(one)
    kept = set(one.keys)
    with restored(one):
        one.send(after)
        drained(one)
    assert one.books.states() == {"SENT": 10}, "the later rows are lost, and their offsets passed"
    one.books.query("UPDATE ledger_identity SET id = 'restored'")

    set_back(one, before[0].created_at)
    drained(one)
    assert one.books.states() == {"SENT": 20}
    copies = {key: report.accepted for key, report in one.seen().items()}
    assert copies == {key: 1 if key in kept else 2 for key in one.keys}
