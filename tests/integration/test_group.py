"""The workers' group: how lanes are spread, who is let in, and who is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from backends.kafka.config import GroupProtocol
from backends.settings import KafkaSettings
from benchmarks.spread import MOST_APART, PARTITIONS, LightMember, most_apart, shared_out
from tests.harness import Fleet, await_, notifications
from tests.harness.wire import Place, Wire

MakeFleet = Callable[..., Fleet]
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
LANES = ("webhook.verification", "webhook.notice", "webhook.marketing")
HEARTBEAT: dict[str, str | int | float | bool] = {"heartbeat.interval.ms": 500}


class Group:
    """Light members that join one after the other."""

    def __init__(self, bootstrap: str, wire: Wire, protocol: GroupProtocol) -> None:
        self.members: list[LightMember] = []
        self._bootstrap = bootstrap
        self._wire = wire
        self._protocol = protocol
        self.topics = [f"{wire.prefix}.{number}" for number in range(len(LANES))]
        for topic in self.topics:
            wire.make_topic(topic, PARTITIONS)
        self._held = ExitStack()

    def join(self, assignors: Sequence[str] = (), **settings: Any) -> LightMember:
        client = HEARTBEAT if self._protocol == "classic" else {}
        known = KafkaSettings(
            bootstrap=self._bootstrap, group_id=self._wire.group, client=client, **settings
        )
        member = LightMember(known, self._protocol, self.topics, assignors)
        self._held.enter_context(closing(member))
        self.members.append(member)
        return member

    def leave(self, member: LightMember) -> None:
        self.members.remove(member)
        member.close()

    def await_shared_out(self, *, evenly: bool = True) -> None:
        """Until every partition has one owner; `evenly`: and each topic's are spread over all members."""

        def done() -> bool:
            complete = shared_out(self.members, len(self.topics) * PARTITIONS)
            return complete and (not evenly or most_apart(self.members, self.topics) <= MOST_APART)

        await_(done, what=f"{len(self.members)} members share the partitions")

    def close(self) -> None:
        self._held.close()


@pytest.fixture
def make_group(kafka_bootstrap: str, topic_prefix: str) -> Iterator[Callable[..., Group]]:
    wire = Wire(kafka_bootstrap, topic_prefix, f"{topic_prefix}-group")
    with ExitStack() as held:
        held.callback(wire.close)

        def make(protocol: GroupProtocol) -> Group:
            return held.enter_context(closing(Group(kafka_bootstrap, wire, protocol)))

        yield make


def _of(held: set[Place], topic: str) -> int:
    return sum(place.topic == topic for place in held)


# ---- spread ----------------------------------------------------------------------------------


@PROTOCOLS
def test_each_lane_is_spread_over_all_workers_as_they_join_and_leave(
    make_group: Callable[..., Group], protocol: GroupProtocol
) -> None:
    group = make_group(protocol)
    for _ in range(5):
        group.join()
        group.await_shared_out()
    while len(group.members) > 1:
        group.leave(group.members[0])
        group.await_shared_out()


@PROTOCOLS
def test_whole_workers_share_every_lane(fleet: MakeFleet, protocol: str) -> None:
    one = fleet(lanes=LANES, partitions=PARTITIONS, protocol=protocol)
    workers = one.start(3)

    def each_has_a_third_of_each() -> bool:
        held = one.wire.members()
        counts = {_of(held[w.id], topic) for w in workers for topic in one.topics}
        assert counts == {PARTITIONS // len(workers)}, counts
        return True

    await_(each_has_a_third_of_each, what="every lane is shared by all three")
    one.send(notifications(60))
    one.await_settled()
    await_(lambda: all(w.metric("settled") > 0 for w in workers), what="each took part")
    one.verify(all_read=False)


def test_an_assignor_that_the_broker_does_not_have_gives_way_to_the_default(
    fleet: MakeFleet,
) -> None:
    one = fleet(protocol="consumer", settings={"kafka": {"assignor": "nonesuch"}})
    worker = one.worker().wait_ready()
    one.await_shared_out([worker])
    one.send(notifications(8))
    one.await_settled()
    (told,) = worker.events("assignor_refused")
    assert (told["wanted"], told["cause"]) == ("nonesuch", "the broker does not have it")
    one.verify(all_read=False)


def test_an_assignor_that_the_classic_protocol_does_not_have_gives_way_to_the_default(
    make_group: Callable[..., Group],
) -> None:
    group = make_group("classic")
    group.join(assignor="uniform")
    group.join()
    group.await_shared_out()


@PROTOCOLS
def test_a_rollout_with_two_assignors_leaves_no_lane_unserved(
    make_group: Callable[..., Group], protocol: GroupProtocol
) -> None:
    """Older workers have `cooperative-sticky`, and no assignor of their own under KIP-848."""
    group = make_group(protocol)
    older = {"classic": "cooperative-sticky", "consumer": ""}[protocol]
    old = [group.join([older]) for _ in range(3)]
    group.await_shared_out(evenly=False)
    evenly = protocol == "consumer"  # who names no assignor has no say in it
    for member in old:
        group.join()
        group.await_shared_out(evenly=evenly)
        group.leave(member)
        group.await_shared_out(evenly=evenly)


def test_a_group_whose_members_name_different_assignors_leaves_no_lane_unserved(
    make_group: Callable[..., Group],
) -> None:
    group = make_group("consumer")
    for assignor in ("uniform", "uniform", "range"):
        group.join(assignor=assignor)
        group.await_shared_out(evenly=False)


def test_a_classic_group_restarted_as_a_whole_is_spread_again(
    make_group: Callable[..., Group],
) -> None:
    group = make_group("classic")
    group.join(assignor="cooperative-sticky")
    group.join()
    group.await_shared_out(evenly=False)
    while group.members:
        group.leave(group.members[0])
    for _ in range(2):
        group.join()
    group.await_shared_out()


# ---- who is ready ----------------------------------------------------------------------------


@PROTOCOLS
def test_workers_beyond_the_number_of_partitions_are_ready(fleet: MakeFleet, protocol: str) -> None:
    one = fleet(partitions=3, protocol=protocol)
    workers = [one.worker() for _ in range(5)]
    for worker in workers:
        worker.wait_ready()
    one.await_shared_out(workers)
    assert [w.readyz()[0] for w in workers] == [200] * 5
    one.send(notifications(30))
    one.await_settled()
    one.verify(all_read=False)


@PROTOCOLS
def test_a_topic_that_nobody_made_is_named_in_the_log_and_by_readyz(
    fleet: MakeFleet, protocol: str
) -> None:
    one = fleet(make_topics=False, protocol=protocol)
    worker = one.worker()
    topic = one.topics[0]
    await_(lambda: topic in (worker.readyz()[1]["reason"] or ""), what="readyz names it")
    status, shown = worker.readyz()
    assert status == 503
    assert "hongyan topics apply" in shown["reason"]
    assert shown["missing_topics"] == one.topics
    assert [e["topic"] for e in worker.events("topic_missing")] == one.topics
    one.apply_topics()
    worker.wait_ready()
    one.send(notifications(4))
    one.await_settled()
    assert worker.readyz()[1]["missing_topics"] == []


# ---- static members --------------------------------------------------------------------------


@PROTOCOLS
def test_a_worker_killed_and_restarted_under_its_instance_id_waits_the_session_out_and_joins(
    fleet: MakeFleet, protocol: str
) -> None:
    one = fleet(protocol=protocol, settings={"kafka": {"group_instance_id": "worker-0"}})
    session_s = 25.0  # longer than a worker takes to start on a busy machine
    _set_session(one, session_s)
    first = one.worker().wait_ready()
    one.await_shared_out([first])
    one.send(notifications(4))
    one.await_settled()
    first.kill()
    killed_at = time.monotonic()
    one.send(notifications(4))
    second = one.worker()
    if protocol == "consumer":
        await_(lambda: second.events("instance_id_in_use"), what="it says that it waits")
        assert second.healthz()[0] == 200
        await_(lambda: "worker-0" in str(second.readyz()[1].get("reason")), what="it says why")
        assert second.readyz()[0] == 503
    one.await_settled(timeout=90)
    assert time.monotonic() - killed_at < session_s + 5, "sending within 5 s of the session's end"
    second.wait_ready()
    assert second.running
    waiting = second.events("instance_id_in_use")
    assert len(waiting) == (1 if protocol == "consumer" else 0), "once"
    one.await_committed()
    one.verify()


def test_a_second_live_worker_under_one_instance_id_waits_and_says_so(fleet: MakeFleet) -> None:
    one = fleet(protocol="consumer", settings={"kafka": {"group_instance_id": "worker-0"}})
    first = one.worker().wait_ready()
    second = one.worker()
    await_(lambda: second.events("instance_id_in_use"), what="it says that it waits")
    one.send(notifications(8))
    one.await_settled()
    assert first.readyz()[0] == 200
    assert (second.readyz()[0], second.healthz()[0]) == (503, 200)
    assert first.stop() == 0
    second.wait_ready()
    one.send(notifications(4))
    one.await_settled()


def test_a_classic_worker_whose_instance_id_another_one_takes_says_so_and_ends(
    fleet: MakeFleet,
) -> None:
    one = fleet(settings={"kafka": {"group_instance_id": "worker-0"}})
    first = one.worker().wait_ready()
    second = one.worker().wait_ready()
    assert first.wait() == 1
    (failed,) = first.events("worker_failed")
    assert "kafka.group_instance_id 'worker-0'" in failed["cause"]
    one.send(notifications(8))
    one.await_settled()
    assert second.running


def _set_session(one: Fleet, seconds: float) -> None:
    """The broker's session for the group, under KIP-848."""
    entry = ConfigEntry(
        "consumer.session.timeout.ms",
        str(int(seconds * 1_000)),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.GROUP, one.wire.group, incremental_configs=[entry])
    for done in one.wire.admin.incremental_alter_configs([resource]).values():
        done.result()
