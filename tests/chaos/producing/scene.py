"""Three brokers, PostgreSQL, Redis and a provider; the shop, and all that carries its notifications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from backends.kafka.topics import Wish, apply
from backends.settings import KafkaSettings
from deploy.local.stack import Stack
from hongyan_client.lookback.barrier import Barrier
from message.vocabulary import LANES as EVERY_LANE
from simulator import Lists, spawn
from tests.chaos.producing.business import (
    BIZ_TYPE,
    LANES,
    ORDER_VARIABLE,
    BusinessOrder,
)
from tests.chaos.producing.extent import Extent
from tests.chaos.producing.places import Places
from tests.chaos.producing.processes import (
    BusinessProcess,
    ChaosProcess,
    GatewayProcess,
    LookbackProcess,
    RelayProcess,
)
from tests.chaos.producing.shop import Shop, opened
from tests.harness import Fleet, await_, fresh_database, ground_on
from tests.harness.business_side import check_endpoint, new_api_token

BUSINESSES, PAIR, WORKERS = 3, 2, 2
_THREADS = 6
_PARTITIONS = 6
_DAY_MS = 86_400_000
LANE_POLICY: Mapping[str, Any] = {
    "threads": 24,
    "queue": 400,
    "timeout_ms": 10_000,
    "ttl_ms": _DAY_MS,
    "max_ttl_ms": _DAY_MS,
    "retry": {"attempts": 50, "base_ms": 200, "cap_ms": 5_000},
}
START_S = 300.0
"""For a process to be ready: a dozen start together."""
WORKER_LEASE_S = 20.0
"""Long: no worker is killed here, and a busy machine must not make one look dead."""


class Carriers(NamedTuple):
    """The processes of one run, by kind."""

    business: Places
    relay: Places
    lookback: Places
    gateway: Places

    def __iter__(self) -> Iterator[Places]:
        return iter((self.business, self.relay, self.lookback, self.gateway))


class Scene:
    """One run's servers and processes. The driver's thread."""

    def __init__(self, fleet: Fleet, shop: Shop, shop_url: str, token: str) -> None:
        self.fleet, self.shop = fleet, shop
        self._shop_url, self._token = shop_url, token
        self._lives = 0

    @property
    def gateways_file(self) -> Path:
        """Addresses of the gateways that run."""
        return self.fleet.folder / "gateways"

    def start(self, extent: Extent) -> Carriers:
        """Starts workers and a recovery, then all carriers, then the business."""
        workers = [self.fleet.worker() for _ in range(WORKERS)]
        self.fleet.recovery()
        for one in workers:
            one.wait_ready(START_S)
        relay = Places("relay", PAIR, lambda _place: self._process(RelayProcess))
        lookback = Places("look-back", PAIR, lambda _place: self._process(LookbackProcess))
        gateway = Places("gateway", PAIR, lambda _place: self._process(GatewayProcess))
        for places in (relay, lookback, gateway):
            for seat in places.seats:
                seat.process.wait_ready(START_S)
        self.show_gateways(gateway)
        business = Places(
            "business", BUSINESSES, lambda place: self._business(extent, place), may_end=True
        )
        return Carriers(business, relay, lookback, gateway)

    def show_gateways(self, gateways: Places) -> None:
        """Writes the addresses of those that serve."""
        processes = [seat.process for seat in gateways.running]
        urls = [one.url for one in processes if isinstance(one, GatewayProcess) and one.url]
        draft = self.gateways_file.with_suffix(".draft")
        draft.write_text("\n".join(urls))
        draft.replace(self.gateways_file)

    def _process(self, kind: type[ChaosProcess], **environment: str) -> ChaosProcess:
        self._lives += 1
        variables = {"HONGYAN_CONFIG": str(self.fleet.config), **environment}
        return kind(f"{kind.program[0]}{self._lives}", self.fleet.folder, variables)

    def _business(self, extent: Extent, place: int) -> ChaosProcess:
        ground = self.fleet.ground
        order = BusinessOrder(
            extent=extent,
            place=place,
            places=BUSINESSES,
            threads=_THREADS,
            database_url=self._shop_url,
            bootstrap=ground.bootstrap,
            prefix=ground.topic_prefix,
            lookback_topic=lookback_topic(ground.topic_prefix),
            gateways=str(self.gateways_file),
            token=self._token,
        )
        told = msgspec.json.encode(order).decode()
        return self._process(BusinessProcess, **{ORDER_VARIABLE: told})


def lookback_topic(prefix: str) -> str:
    """Returns the run's topic of transactional messages."""
    return f"{prefix}.look_back_msg"


@contextmanager
def scene_on(stack: Stack, folder: Path) -> Iterator[Scene]:
    """Yields a scene on a stack of three brokers; ends its processes afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    lanes = sorted(set(LANES.values()))
    with ExitStack() as held:
        ground = held.enter_context(ground_on(stack))
        provider = held.enter_context(spawn(folder, lists=Lists(status_query=True, lag_ms=0)))
        shop_url = held.enter_context(fresh_database(stack.database_url))
        shop = held.enter_context(opened(shop_url))
        shop.create()
        port = held.enter_context(check_endpoint({BIZ_TYPE: Barrier(shop.engine).decide}))
        fleet = held.enter_context(
            Fleet(
                ground,
                folder,
                lanes=lanes,
                policy=dict.fromkeys(lanes, LANE_POLICY),
                settings=_settings(ground.topic_prefix, shop_url, port),
                lease_s=WORKER_LEASE_S,
                session_timeout_s=20.0,
                provider=provider,
                make_topics=False,
            )
        )
        make_topics(fleet)
        yield Scene(fleet, shop, shop_url, new_api_token(ground.database_url, ["send", "read"]))


def make_topics(fleet: Fleet) -> None:
    """Makes the topics with three copies, of which two must be in sync."""
    ground = fleet.ground
    kafka = KafkaSettings(bootstrap=ground.bootstrap, topic_prefix=ground.topic_prefix)
    wish = Wish(
        partitions=_PARTITIONS,
        dead_partitions=1,
        trace_partitions=2,
        outcome_partitions=1,
        lookback_topic=lookback_topic(ground.topic_prefix),
    )
    lanes = [one for one in EVERY_LANE if one.name in fleet.lanes]
    reports = apply(kafka, lanes, wish)
    assert {one.status for one in reports} == {"created"}, reports
    assert {one.replication for one in reports} == {3}, reports
    await_(lambda: all(fleet.wire.partitions(one.name) for one in reports), what="topics are there")


def _settings(prefix: str, shop_url: str, port: int) -> dict[str, Mapping[str, Any]]:
    here = "127.0.0.1:0"
    return {
        "recovery": {"poll_s": 0.5, "lease_s": WORKER_LEASE_S, "health_address": here},
        "trace": {"database": False},
        "relay": {"outbox_url": shop_url, "lease_s": 20, "health_address": here},
        "gateway": {"listen": here, "health_address": here, "access_log": False},
        "lookback": {
            "topic": lookback_topic(prefix),
            "lease_s": 10,
            "health_address": here,
            "checks": {"shop": {"url": f"http://127.0.0.1:{port}/check"}},
            "biz_types": {
                BIZ_TYPE: {
                    "check": "shop",
                    "topics": [f"{prefix}.dispatch.*"],
                    "immunity_s": 5,
                    "check_s": 1,
                    "longest_pause_s": 10,
                    "max_checks": 100,
                }
            },
        },
    }
