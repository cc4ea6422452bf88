"""`hongyan bench spread`: how evenly the workers of a group share each lane, and what that brings.

    spread        1 to 5 members join one after the other, three lanes of 12 partitions: the most by which
                  the members' shares of one lane differ. Members as workers have them, that read nothing
    throughput    one lane with one worker and with three: whole workers, 16 threads, a provider that
                  takes 200 ms, so that a worker's threads bound it and not the machine

Both under both group protocols.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from backends.kafka import clients as kafka
from backends.kafka.config import GroupProtocol
from backends.settings import KafkaSettings
from benchmarks.ground import (
    LANE,
    Servers,
    environment_for,
    fresh_database,
    notification,
    produce,
    provider_at,
    topics,
)
from benchmarks.processes import Program
from dispatcher.kafka.group_member import GroupMember
from message.vocabulary import Lane

ROUNDS: Final = 3
PARTITIONS: Final = 12
LANES: Final = (Lane("webhook", "verification"), LANE, Lane("webhook", "marketing"))
MEMBERS: Final = 5
PROTOCOLS: Final[tuple[GroupProtocol, ...]] = ("classic", "consumer")
MOST_APART: Final = 1
"""Partitions of one lane between the worker with most and the one with fewest."""
THREADS: Final = 16
LATENCY_MS: Final = 200
FLEET: Final = 3
FASTER: Final = 2.5
"""Of three workers over one."""
WARM_S: Final = 6.0
SPAN_S: Final = 12.0
_RATE: Final = THREADS * 1_000 // LATENCY_MS
"""What one worker's threads can do in a second."""
_JOIN_S: Final = 60.0
_POLL_S: Final = 0.02
_CONFIGURATION: Final = """
[accounts.demo]
provider = "webhook"
endpoint = "{url}/send"
"""
_POLICY: Final = f"""
[lanes."{LANE.name}"]
threads = {THREADS}
"""

Share = tuple[str, int]
"""Topic and partition."""


class LightMember:
    """A worker's place in its group, without a worker. One thread's."""

    def __init__(
        self,
        settings: KafkaSettings,
        protocol: GroupProtocol,
        topics: Sequence[str],
        assignors: Sequence[str] = (),
    ) -> None:
        """`assignors`: what it offers instead of a worker's; an empty text is the broker's own."""
        self.held: set[Share] = set()
        self._member = GroupMember(
            lambda assignor: kafka.consumer(settings, protocol=protocol, assignor=assignor),
            assignors or kafka.assignors(settings, protocol),
            epoch=kafka.member_epoch,
            refusal=kafka.group_refusal,
            wanted=settings.assignor,
            instance_id=settings.group_instance_id,
        )
        self._member.subscribe(
            topics,
            on_assign=self._came,
            on_revoke=self._went,
            on_lost=self._went,
            on_refused=self.held.clear,
        )

    def poll(self) -> None:
        """Go on with what the group does."""
        self._member.poll(_POLL_S)

    def of(self, topic: str) -> int:
        """How many partitions of the topic it has."""
        return sum(held == topic for held, _ in self.held)

    def close(self) -> None:
        """Leave the group."""
        self._member.close()

    def _came(self, _consumer: Any, places: Sequence[Any]) -> None:
        self.held |= {(p.topic, p.partition) for p in places}

    def _went(self, _consumer: Any, places: Sequence[Any]) -> None:
        self.held -= {(p.topic, p.partition) for p in places}


def shared_out(members: Sequence[LightMember], partitions: int) -> bool:
    """Let all of them go on; whether each of so many partitions has exactly one owner now."""
    for member in members:
        member.poll()
    held = [share for member in members for share in member.held]
    return len(held) == len(set(held)) == partitions


def most_apart(members: Sequence[LightMember], topics: Sequence[str]) -> int:
    """The most by which two members' shares of one topic differ."""
    shares = [[member.of(topic) for member in members] for topic in topics]
    return max(max(of_topic) - min(of_topic) for of_topic in shares)


def measure(
    servers: Servers, *, rounds: int = ROUNDS, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Measure both under both protocols and report them."""
    apart = {protocol: _spread(servers, protocol, say) for protocol in PROTOCOLS}
    rates: dict[str, dict[int, list[float]]] = {p: {1: [], FLEET: []} for p in PROTOCOLS}
    with TemporaryDirectory() as name:
        folder = Path(name)
        with provider_at(folder, "provider", latency_ms=str(LATENCY_MS)) as provider:
            (folder / "hongyan.toml").write_text(_CONFIGURATION.format(url=provider.url))
            (folder / "policy.toml").write_text(_POLICY)
            for number in range(rounds):
                for protocol in PROTOCOLS:
                    for workers, found in rates[protocol].items():
                        found.append(_rate(servers, protocol, workers, folder))
                        line = f"{protocol:8} {workers} workers  {found[-1]:7.1f} messages/s"
                        say(f"round {number + 1}/{rounds}  {line}")
    return _report(apart, rates)


def _spread(servers: Servers, protocol: GroupProtocol, say: Callable[[str], None]) -> list[int]:
    """Per number of members, how far apart their shares of a lane are at most."""
    found = []
    with topics(servers, LANES, PARTITIONS) as prefix, ExitStack() as held:
        settings = KafkaSettings(
            bootstrap=servers.bootstrap,
            topic_prefix=prefix,
            group_id=f"{prefix}-spread",
            client={"heartbeat.interval.ms": 500} if protocol == "classic" else {},
        )
        names = [lane.topic(prefix) for lane in LANES]
        members: list[LightMember] = []
        for _ in range(MEMBERS):
            members.append(held.enter_context(closing(LightMember(settings, protocol, names))))
            found.append(_settled_apart(members, names))
            say(f"{protocol:8} {len(members)} members   {found[-1]} apart")
    return found


def _settled_apart(members: Sequence[LightMember], names: Sequence[str]) -> int:
    """Waits until the partitions are shared out evenly, or for long enough to say that they are not."""
    deadline = time.monotonic() + _JOIN_S
    while time.monotonic() < deadline:
        complete = shared_out(members, len(names) * PARTITIONS)
        if complete and most_apart(members, names) <= MOST_APART:
            break
    return most_apart(members, names)


def _rate(servers: Servers, protocol: GroupProtocol, workers: int, folder: Path) -> float:
    """Messages a second through one lane, with so many fresh workers on a fresh database."""
    name = f"b{uuid.uuid4().hex[:12]}"
    with (
        topics(servers, LANES, PARTITIONS) as prefix,
        fresh_database(servers.database_url, name) as url,
        ExitStack() as held,
    ):
        _preload(servers, prefix, int(workers * _RATE * (WARM_S + SPAN_S) * 2))
        environment = environment_for(servers, prefix, name, url, folder / "policy.toml", LANES) | {
            "HONGYAN_KAFKA__GROUP_PROTOCOL": protocol
        }
        fleet = [
            held.enter_context(Program(["worker"], environment, folder / f"{name}-{number}.log"))
            for number in range(workers)
        ]
        for worker in fleet:
            worker.await_ready()
        time.sleep(WARM_S)  # under load: the group has settled, and queues are full
        begun, before = time.monotonic(), sum(worker.settled() for worker in fleet)
        time.sleep(SPAN_S)
        after = sum(worker.settled() for worker in fleet)
        return (after - before) / (time.monotonic() - begun)


def _preload(servers: Servers, prefix: str, count: int) -> None:
    producer = kafka.producer(KafkaSettings(bootstrap=servers.bootstrap, topic_prefix=prefix))
    for number in range(count):
        produce(producer, LANE.topic(prefix), notification(number))
    producer.flush(60)


def _report(
    apart: dict[GroupProtocol, list[int]], rates: dict[str, dict[int, list[float]]]
) -> dict[str, Any]:
    medians = {
        f"{protocol}, {workers} {'worker' if workers == 1 else 'workers'}": {
            "per_second": statistics.median(found)
        }
        for protocol, by_workers in rates.items()
        for workers, found in by_workers.items()
    }
    ratios = [_apart(protocol, found) for protocol, found in apart.items()]
    ratios += [_faster(protocol, found) for protocol, found in rates.items()]
    return {
        "threads": THREADS,
        "latency_ms": LATENCY_MS,
        "partitions": PARTITIONS,
        "apart_by_members": apart,
        "medians": medians,
        "ratios": ratios,
    }


def _apart(protocol: str, found: Sequence[int]) -> dict[str, Any]:
    return {
        "ratio": f"partitions of a lane, most less fewest, {protocol}",
        "rounds": list(found),
        "median": max(found),
        "wanted": MOST_APART,
        "at_most": True,
        "holds": max(found) <= MOST_APART,
    }


def _faster(protocol: str, found: dict[int, list[float]]) -> dict[str, Any]:
    rounds = [round(many / one, 2) for one, many in zip(found[1], found[FLEET], strict=True)]
    median = statistics.median(rounds)
    return {
        "ratio": f"one lane, {FLEET} workers / 1, {protocol}",
        "rounds": rounds,
        "median": median,
        "wanted": FASTER,
        "holds": median >= FASTER,
    }
