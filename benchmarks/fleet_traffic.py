"""A business that sends steadily by every way in, and an operator who reads the console.

Each way has a thread of its own, which sends at a steady pace and counts what it was promised. A way that
fails ends the run.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from itertools import count
from types import TracebackType
from typing import Final, Self

import httpx
import sqlalchemy as sa

from backends.kafka.topics import Wish, apply
from backends.settings import KafkaSettings
from benchmarks.fleet_processes import BIZ_TYPE, CODES, LANES, NOTICES, FleetGround, FleetProcesses
from benchmarks.ground import Servers
from hongyan_client import Client
from hongyan_client.composition import compose, encoded
from hongyan_client.lookback.barrier import Barrier, barrier_table
from hongyan_client.lookback.transactions import LookBack
from hongyan_client.outbox import Outbox, outbox_tables
from hongyan_client.outbox.commit_publisher import CommitPublisher
from hongyan_client.outbox.engine import outbox_engine
from hongyan_client.records import Record
from message.envelope import Notification
from message.vocabulary import Lane
from tests.harness.business_side import check_endpoint, new_api_token
from tests.harness.databases import fresh_database, fresh_ledger
from tests.harness.ground import fresh_topics

_SHARES: Final = {"client": 0.5, "outbox": 0.15, "at_once": 0.1, "lookback": 0.1, "gateway": 0.15}
"""Of the notifications a second, by way in."""
ROLLED_BACK: Final = "rolled-back"
"""Head of the business id of what the business rolled back."""
_ROLLED_BACK, _SILENT = 0.2, 0.1
"""Shares of the look-back transactions: rolled back, and without a word to the service at their end."""
_POISON: Final = 500
"""One record in so many is no notification."""
_PAGE_S: Final = 1.0
_STREAM_S: Final = 60.0
_CLOSE_S: Final = 30.0
_PARTITIONS: Final = 4
_PAGES: Final = (
    "/",
    "/search?q=state%3Asent",
    "/search?q=lane%3Asms.verification",
    "/lanes",
    "/lookback",
)


class FleetBusiness:
    """The business's database, its API key, and the endpoint of its checks."""

    def __init__(self, ground: FleetGround, engine: sa.Engine, bootstrap: str, token: str) -> None:
        self.ground, self.engine = ground, engine
        self.bootstrap, self.token = bootstrap, token


class FleetTraffic:
    """Sends from `__enter__` to `__exit__`."""

    def __init__(
        self, business: FleetBusiness, platform: FleetProcesses, per_second: float
    ) -> None:
        self._business = business
        self._platform = platform
        self._stop = threading.Event()
        self._failure: BaseException | None = None  # written by the thread that failed
        self._counts = dict.fromkeys(_SHARES, 0)  # each written by the thread of its way
        ways: Mapping[str, Callable[[int], bool]] = {
            "client": self._by_client,
            "outbox": self._by_outbox,
            "at_once": self._at_once,
            "lookback": self._by_lookback,
            "gateway": self._by_gateway,
        }
        jobs = [
            lambda name=name, way=way: self._pace(name, way, per_second * _SHARES[name])
            for name, way in ways.items()
        ]
        self._threads = [
            threading.Thread(target=self._guarded, args=(job,), daemon=True)
            for job in (*jobs, self._read_pages, self._watch_overview)
        ]
        self._luck = random.Random(7)  # of the look-back's thread alone
        self._held = ExitStack()

    def __enter__(self) -> Self:
        business, prefix = self._business, self._business.ground.prefix
        self._client = self._held.enter_context(Client(business.bootstrap, topic_prefix=prefix))
        publisher = self._client.publisher
        publishing = outbox_engine(business.engine.url, pool_size=1)
        commits = CommitPublisher(publishing, publisher)
        self._held.callback(publishing.dispose)
        self._held.callback(commits.close, _CLOSE_S)
        self._outbox = Outbox(topic_prefix=prefix)
        self._quick_outbox = Outbox(topic_prefix=prefix, after_commit=commits)
        self._look_back = LookBack(publisher, BIZ_TYPE, topic=f"{prefix}.look_back_msg")
        self._barrier = Barrier(business.engine)
        headers = {"Authorization": f"Bearer {business.token}"}
        url = self._platform.gateway_url
        self._gateway = self._held.enter_context(
            httpx.Client(base_url=url, headers=headers, timeout=30, trust_env=False)
        )
        for one in self._threads:
            one.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for one in self._threads:
            one.join(_CLOSE_S)
        self._held.close()

    def check(self) -> None:
        """Raises the error of a thread that has failed."""
        if self._failure is not None:
            raise RuntimeError("a way in failed") from self._failure

    def promised(self) -> int:
        """Returns the notifications that the business was promised."""
        return sum(self._counts.values())

    def by_way(self) -> dict[str, int]:
        """Returns the promised ones by way in."""
        return dict(self._counts)

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as exc:  # of any kind: the run ends with it
            self._failure = exc

    def _pace(self, name: str, way: Callable[[int], bool], per_second: float) -> None:
        """Calls the way at a steady pace. It returns whether a notification was promised."""
        began = time.monotonic()
        for number in count():
            ahead = number / per_second - (time.monotonic() - began)
            if self._stop.wait(max(0.0, ahead)):
                return
            if way(number):
                self._counts[name] += 1

    def _by_client(self, number: int) -> bool:
        self._client.send(_notification(number, CODES if number % 2 else NOTICES)).result(_CLOSE_S)
        if not number % _POISON:
            topic = NOTICES.topic(self._business.ground.prefix)
            poison = Record(topic, b"poison", b'{"v": 1, "id": "poison"')
            self._client.publisher.publish(poison, _CLOSE_S).result(_CLOSE_S)
        return True

    def _by_outbox(self, number: int) -> bool:
        with self._business.engine.begin() as connection:
            self._outbox.add(connection, _notification(number))
        return True

    def _at_once(self, number: int) -> bool:
        with self._business.engine.begin() as connection:
            self._quick_outbox.add(connection, _notification(number))
        return True

    def _by_lookback(self, number: int) -> bool:
        commits, silent = self._luck.random() >= _ROLLED_BACK, self._luck.random() < _SILENT
        one = _notification(number, biz="n" if commits else ROLLED_BACK)
        topic = one.lane.topic(self._business.ground.prefix)
        headers = [("hongyan-id", one.id.encode())]
        record = Record(topic, one.kafka_key.encode(), encoded(one), headers)
        ref = self._look_back.prepare(one.id, record)
        if commits:
            with self._business.engine.begin() as connection:
                self._barrier.pass_through(connection, ref)
        if not silent:
            (self._look_back.commit if commits else self._look_back.rollback)(ref)
        return commits

    def _by_gateway(self, number: int) -> bool:
        body = {
            "channel": NOTICES.channel,
            "kind": NOTICES.kind,
            "receivers": [f"user-{number}"],
            "content": {"text": "paid"},
        }
        answer = self._gateway.post("/v1/notifications", json=body).raise_for_status()
        if not number % 5:
            found = self._gateway.get(f"/v1/notifications/{answer.json()['id']}")
            if found.status_code not in {httpx.codes.OK, httpx.codes.NOT_FOUND}:
                found.raise_for_status()
        return True

    def _read_pages(self) -> None:
        """Reads one page of the console after the other."""
        for number in count():
            if self._stop.wait(_PAGE_S):
                return
            self._platform.console.get(_PAGES[number % len(_PAGES)])

    def _watch_overview(self) -> None:
        """Holds the live stream of the overview, and opens another one each minute."""
        console = self._platform.console
        while not self._stop.is_set():
            connection = HTTPConnection(console.host, console.port, timeout=30)
            until = time.monotonic() + _STREAM_S
            connection.request("GET", "/live/overview", headers={"cookie": console.cookie})
            stream = connection.getresponse()
            while time.monotonic() < until and not self._stop.is_set() and stream.readline():
                pass
            connection.close()


@contextmanager
def business_on(servers: Servers) -> Iterator[FleetBusiness]:
    """Yields the business, with topics and databases of its own that go at the end."""
    with ExitStack() as held:
        prefix = held.enter_context(fresh_topics(servers.bootstrap))
        ledger_url = held.enter_context(fresh_ledger(servers.database_url))
        shop_url = held.enter_context(fresh_database(servers.database_url))
        engine = outbox_engine(shop_url, pool_size=8)
        held.callback(engine.dispose)
        metadata = sa.MetaData()
        outbox_tables(metadata)
        barrier_table(metadata)
        metadata.create_all(engine)
        port = held.enter_context(check_endpoint({BIZ_TYPE: Barrier(engine).decide}))
        _make_topics(servers.bootstrap, prefix)
        ground = FleetGround(prefix, ledger_url, shop_url, f"http://127.0.0.1:{port}/check")
        yield FleetBusiness(
            ground, engine, servers.bootstrap, new_api_token(ledger_url, ["send", "read"])
        )


def _make_topics(bootstrap: str, prefix: str) -> None:
    kafka = KafkaSettings(bootstrap=bootstrap, topic_prefix=prefix)
    wish = Wish(partitions=_PARTITIONS, lookback_topic=f"{prefix}.look_back_msg")
    apply(kafka, LANES, wish)


def _notification(number: int, lane: Lane = NOTICES, biz: str = "n") -> Notification:
    """Returns a notification of a new id to one receiver."""
    if lane is CODES:
        to, told = f"+86138{number % 10**8:08d}", {"code": "4711"}
        return compose(lane.name, [to], template="login-code", params=told, biz_id=f"c-{number}")
    return compose(
        lane.name, [f"user-{number}"], content={"text": "paid"}, biz_id=f"{biz}-{number}"
    )
