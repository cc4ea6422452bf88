"""A process of the business. It works off its numbers, each in a transaction, until none is left.

It remembers nothing but its database: killed at any place, its next life goes on from there. A number
whose transaction is not committed is begun anew, with a new notification.
"""

from __future__ import annotations

import argparse
import heapq
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec
from sqlalchemy import Connection
from sqlalchemy import exc as sa_exc
from sqlalchemy.orm import Session

from hongyan_client.composition import compose, encoded
from hongyan_client.errors import ClientError
from hongyan_client.lookback.barrier import Barrier
from hongyan_client.lookback.errors import TransactionFenced
from hongyan_client.lookback.transactions import LookBack
from hongyan_client.outbox import Outbox
from hongyan_client.outbox.commit_publisher import CommitPublisher
from hongyan_client.publisher import Publisher
from hongyan_client.records import Record
from message.envelope import Notification
from tests.chaos.producing.extent import Deal, Extent, Way
from tests.chaos.producing.shop import Shop, order_row
from tests.harness.launch import end_with

BIZ_TYPE = "order"
ORDER_VARIABLE = "CHAOS_BUSINESS"
LANES = {
    Way.OUTBOX: "webhook.notice",
    Way.AT_ONCE: "webhook.notice",
    Way.LOOKBACK: "webhook.verification",
    Way.GATEWAY: "webhook.marketing",
}
_AGAIN_S, _ANSWER_S, _CLOSE_S = 0.5, 20.0, 10.0
_LOOK_S = 0.1
_ACCEPTED = 202
_TRIED_AGAIN = frozenset({409, 429, 500, 502, 503, 504})

log = logging.getLogger("business")


class BusinessOrder(msgspec.Struct, frozen=True):
    """All that a process is told at its start."""

    extent: Extent
    place: int
    places: int
    threads: int
    database_url: str
    bootstrap: str
    prefix: str
    lookback_topic: str
    gateways: str
    """File with the addresses of the gateways that run, one a line."""
    token: str


class Refused(Exception):
    """The business rolls its transaction back."""


class TryAgain(Exception):
    """The number is not at its end, and is tried again later."""


class WorkList:
    """Numbers that are not at their end. Any thread."""

    def __init__(self, deals: list[Deal], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._turns = count()
        self._lock = threading.Lock()
        self._later = [(0.0, next(self._turns), deal) for deal in deals]
        self._open = len(deals)

    def take(self) -> Deal | None:
        """Returns one whose time has come; None if there is none now."""
        with self._lock:
            if self._later and self._later[0][0] <= self._monotonic():
                return heapq.heappop(self._later)[2]
            return None

    def put_back(self, deal: Deal) -> None:
        """Has it taken again, a little later."""
        with self._lock:
            until = self._monotonic() + _AGAIN_S
            heapq.heappush(self._later, (until, next(self._turns), deal))

    def end(self) -> None:
        """One is at its end."""
        with self._lock:
            self._open -= 1

    @property
    def left(self) -> bool:
        """Whether any is not at its end."""
        return self._open > 0


class GatewayCaller:
    """POSTs of one thread. A failed one is repeated at another gateway."""

    def __init__(self, gateways: Path, token: str) -> None:
        self._gateways = gateways
        self._client = httpx.Client(timeout=_ANSWER_S, trust_env=False)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._turn = 0

    def post(self, deal: Deal) -> str:
        """Returns the id that the gateway answered. Raises TryAgain."""
        channel, _, kind = LANES[deal.way].partition(".")
        body = {
            "channel": channel,
            "kind": kind,
            "receivers": [deal.name],
            "biz_id": deal.name,
            "content": {"text": "paid"},
        }
        headers = {**self._headers, "Idempotency-Key": deal.name}
        try:
            answer = self._client.post(
                f"{self._address()}/v1/notifications", json=body, headers=headers
            )
        except httpx.HTTPError as exc:
            raise self._other(type(exc).__name__) from exc
        if answer.status_code in _TRIED_AGAIN:
            raise self._other(f"status {answer.status_code}")
        if answer.status_code != _ACCEPTED:
            raise RuntimeError(f"the gateway answered {answer.status_code}: {answer.text[:300]}")
        return str(answer.json()["id"])

    def _address(self) -> str:
        try:
            known = self._gateways.read_text().split()
        except FileNotFoundError:
            known = []
        if not known:
            raise TryAgain("no gateway runs")
        return known[self._turn % len(known)]

    def _other(self, why: str) -> TryAgain:
        self._turn += 1
        return TryAgain(f"gateway: {why}")


class Business:
    """The process. `run` returns once each of its numbers is at its end."""

    def __init__(self, order: BusinessOrder) -> None:
        self._order = order
        self.shop = Shop(order.database_url, order.threads)
        self._publishing = Shop(order.database_url, 1)
        self._publisher = Publisher(order.bootstrap, client_id=f"business-{order.place}")
        self._look_back = LookBack(self._publisher, BIZ_TYPE, topic=order.lookback_topic)
        self._barrier = Barrier(self.shop.engine)
        self._at_once = CommitPublisher(self._publishing.engine, self._publisher)
        self._outbox = Outbox(topic_prefix=order.prefix)
        self._quick_outbox = Outbox(topic_prefix=order.prefix, after_commit=self._at_once)
        self._repeats: Counter[str] = Counter()  # any thread; a race loses a count
        done = self.shop.done()
        mine = order.extent.deals(order.place, order.places)
        self._work = WorkList([deal for deal in mine if deal.number not in done])
        self._failure: BaseException | None = None

    def run(self) -> int:
        """Returns the exit code."""
        threads = [threading.Thread(target=self._thread) for _ in range(self._order.threads)]
        log.info("business_started")
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self._at_once.close(_CLOSE_S)
        self._publisher.close(_CLOSE_S)
        log.info("ended; repeats: %s", dict(self._repeats))
        if self._failure is not None:
            log.error("failed", exc_info=self._failure)
        return 1 if self._failure is not None else 0

    def _thread(self) -> None:
        caller = GatewayCaller(Path(self._order.gateways), self._order.token)
        try:
            while self._work.left and self._failure is None:
                deal = self._work.take()
                if deal is None:
                    time.sleep(_LOOK_S)
                else:
                    self._try(deal, caller)
        except BaseException as exc:  # of any kind: the process ends with it
            self._failure = exc

    def _try(self, deal: Deal, caller: GatewayCaller) -> None:
        try:
            self._do(deal, caller)
        except (TryAgain, ClientError, TransactionFenced, sa_exc.OperationalError) as exc:
            self._repeats[f"{type(exc).__name__}: {exc}"[:80]] += 1
            self._work.put_back(deal)
        else:
            self._work.end()

    def _do(self, deal: Deal, caller: GatewayCaller) -> None:
        """Brings a number to its end."""
        ways: dict[Way, Callable[[Deal], None]] = {
            Way.OUTBOX: self._by_outbox,
            Way.AT_ONCE: self._at_once_by_outbox,
            Way.LOOKBACK: self._by_lookback,
            Way.GATEWAY: lambda one: self._by_gateway(one, caller),
        }
        try:
            ways[deal.way](deal)
        except Refused:
            self.shop.refuse(deal.number)
        except sa_exc.IntegrityError:
            # The transaction of a killed life was under way when this life asked for it.
            if not self.shop.has(deal.number):
                raise

    def _by_outbox(self, deal: Deal) -> None:
        one = notification(deal)
        with self.shop.engine.begin() as connection:
            connection.execute(order_row(deal, one.id))
            self._outbox.add(connection, one)
            _refuse_if_due(deal)

    def _at_once_by_outbox(self, deal: Deal) -> None:
        one = notification(deal)
        with Session(self.shop.engine) as session, session.begin():
            session.execute(order_row(deal, one.id))
            self._quick_outbox.add(session, one)
            _refuse_if_due(deal)

    def _by_lookback(self, deal: Deal) -> None:
        one = notification(deal)
        record = _record(one, self._order.prefix)
        if deal.silent:
            ref = self._look_back.prepare(deal.name, record)
            self._order_in_transaction(deal, one, ref)
            return
        with self._look_back.transaction(deal.name, record, self._barrier.decide) as ref:
            self._order_in_transaction(deal, one, ref)

    def _order_in_transaction(self, deal: Deal, one: Notification, ref: Any) -> None:
        with self.shop.engine.begin() as connection:
            self._barrier.pass_through(connection, ref)
            connection.execute(order_row(deal, one.id))
            _refuse_if_due(deal)

    def _by_gateway(self, deal: Deal, caller: GatewayCaller) -> None:
        if not self.shop.has(deal.number):
            with self.shop.engine.begin() as connection:
                self._insert(connection, deal)
        self.shop.note_answer(deal.number, caller.post(deal))

    def _insert(self, connection: Connection, deal: Deal) -> None:
        connection.execute(order_row(deal, None))
        _refuse_if_due(deal)


def notification(deal: Deal) -> Notification:
    """Returns a notification of a new id to the receiver of that number."""
    return compose(LANES[deal.way], [deal.name], content={"text": "paid"}, biz_id=deal.name)


def _record(one: Notification, prefix: str) -> Record:
    topic, headers = one.lane.topic(prefix), [("hongyan-id", one.id.encode())]
    return Record(topic, one.kafka_key.encode(), encoded(one), headers)


def _refuse_if_due(deal: Deal) -> None:
    """The last statement of a transaction that is rolled back. Raises Refused."""
    if not deal.commits:
        raise Refused


def main() -> int:
    """Runs the process that the environment describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="business")
    parser.add_argument("--leash", type=int, required=True)
    flags = parser.parse_args()
    threading.Thread(target=end_with, args=(flags.leash,), daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    order = msgspec.json.decode(os.environ[ORDER_VARIABLE], type=BusinessOrder)
    return Business(order).run()


if __name__ == "__main__":
    sys.exit(main())
