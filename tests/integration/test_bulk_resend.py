"""A bulk resend through the console, with `kill -9` of the console and of recovery in the middle.

MESSAGES deliveries (300; 10,000 for the bar) are selected. Two in a hundred are in doubt, and one in two
hundred is recalled while the job runs. The provider's own book must have each eligible one once, and no
other.
"""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from admin.access import Role
from admin.parts import open_parts
from backends.settings import ConsoleSettings, KafkaSettings, ResendSettings
from deploy.local.layout import REPOSITORY
from deploy.local.stack import Stack
from idempotency.ledger import Settlement
from idempotency.recalls import Kind
from idempotency.resend_jobs.contract import JobState, ResendJob
from message.delivery import Delivery
from message.states import Event, State
from recovery.recall.factory import open_recalling
from simulator import Faults, Lists, Simulator
from tests.harness.fork_server import HONGYAN, Process, Program, start
from tests.harness.notifications import webhook
from tests.harness.simulators import spawn
from tests.harness.waiting import await_
from tests.recovery.ground import Ground

MESSAGES = int(os.environ.get("MESSAGES") or 300)
DOUBTED = MESSAGES * 2 // 100
RECALLED = max(MESSAGES // 200, 2)
RATE = max(MESSAGES / 30, 20.0)
"""Deliveries a second: the job takes half a minute, so that both kills meet it."""
PASSWORD = "correct horse battery"
LIMIT_S = 120 + MESSAGES / RATE * 3
_TOKEN = re.compile(r'name="csrf" value="(\w+)"')
_SIGNED = re.compile(r'name="signature" value="(\w+)"')
_BATCH = 500
SILENT = "silent"
"""An account whose provider answers no question. A call that a kill cuts off goes through another one, so
that recovery learns what became of it."""


class ConsoleProcess:
    """A real `hongyan console` on one port, which its kills and starts keep."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._process: Process | None = None

    def start(self) -> None:
        environment = {**os.environ, "HONGYAN_CONFIG": str(self._ground.folder / "hongyan.toml")}
        arguments = ["console", "--listen", self.address]
        program = Program(HONGYAN, arguments, environment, str(REPOSITORY))
        with (self._ground.folder / "console.log").open("ab") as output:
            self._process = start(program, output.fileno(), output.fileno())
        await_(self._answers, what=lambda: f"the console answers\n{self._ground.logs()}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            with httpx.Client(trust_env=False) as client:
                return client.get(f"http://{self.address}/login").status_code == 200
        except httpx.TransportError:
            return False


class Operator:
    """A person at the console, by HTTP as a browser speaks it."""

    def __init__(self, console: ConsoleProcess, name: str) -> None:
        self._client = httpx.Client(
            base_url=f"http://{console.address}", trust_env=False, timeout=60
        )
        self.close = self._client.close
        self.post("/login", "/login", name=name, password=PASSWORD)

    def page(self, path: str) -> str:
        answer = self._client.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code}"
        return answer.text

    def post(self, path: str, page: str, **fields: Any) -> str:
        """Sends the form of a page. Returns the address that the answer leads to."""
        token = _TOKEN.search(self.page(page))
        assert token
        answer = self._client.post(path, data={"csrf": token[1], **fields})
        assert answer.status_code == 303, f"{path}: {answer.status_code} {answer.text[-2_000:]}"
        return str(answer.headers["location"])

    def signature(self, job: str) -> str:
        found = _SIGNED.search(self.page(job))
        assert found
        return found[1]


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path, lists=Lists(status_query=True, lag_ms=0)) as provider:
        provider.control(rules=[Faults(latency_ms="5-40")])
        yield provider


@pytest.fixture
def ground(
    stack: Stack, ledger_database: str, provider: Simulator, topic_prefix: str, tmp_path: Path
) -> Iterator[Ground]:
    made = Ground(ledger_database, provider, tmp_path, unknown="park", accounts=["main"])
    silent = {"provider": "webhook", "endpoint": f"{provider.url}/hook"}
    made.settings = msgspec.structs.replace(
        made.settings,
        accounts={"main": webhook(f"{provider.url}/hook"), SILENT: silent},
        kafka=KafkaSettings(bootstrap=stack.bootstrap, topic_prefix=topic_prefix),
        console=ConsoleSettings(health_address="127.0.0.1:0"),
        resend=ResendSettings(canary=10, rate_per_s=RATE, approve_above=MESSAGES // 2),
    )
    with closing(made):
        yield made


def parked(ground: Ground, count: int) -> list[Delivery]:
    """Deliveries that the provider refused for sure, until their attempts were spent."""
    found: list[Delivery] = []
    while len(found) < count:
        items = ground.claimed(min(_BATCH, count - len(found)), ttl_ms=3_600_000)
        ground.ledger.settle([Settlement(i, Event.BUDGET_SPENT, "attempts_spent") for i in items])
        found += items
    return found


def doubted(ground: Ground, count: int) -> list[Delivery]:
    """Deliveries whose call had no answer; the provider had not got them, and cannot be asked."""
    items = ground.claimed(count, ttl_ms=3_600_000)
    for item in items:
        item.account = SILENT
    ground.ledger.settle([Settlement(i, Event.UNKNOWN, "timeout") for i in items])
    return items


def people(ground: Ground) -> None:
    with ExitStack() as stack:
        parts = open_parts(ground.settings, stack)
        with parts.databases.primary.begin() as connection:
            for name, role in (("lin", Role.OPERATOR), ("bo", Role.APPROVER)):
                number = parts.people.users.add(connection, name, by="test", password=PASSWORD)
                parts.people.users.set_roles(connection, number, {role: ("*",)})


def await_job(ground: Ground, job: str, done: Callable[[ResendJob], bool], what: str) -> ResendJob:
    def found() -> ResendJob | None:
        row = ground.ledger.resend_jobs().get(job)
        return row if row and done(row) else None

    def missing() -> str:
        return f"{what}: {ground.ledger.resend_jobs().get(job)}\n{ground.logs()}"

    await_(lambda: found() is not None, LIMIT_S, missing)
    row = found() or ground.ledger.resend_jobs().get(job)
    assert row is not None
    return row


def accepted(ground: Ground) -> Counter[str]:
    return Counter(r.key for r in ground.provider.records() if r.accepted)


@pytest.mark.timeout(int(LIMIT_S * 3))
@pytest.mark.soak(
    small="tests/recovery/resend_jobs/test_killed.py::test_killed_in_the_middle_of_a_job_each_eligible_delivery_goes_once"
)
def test_a_bulk_resend_survives_the_kill_of_console_and_recovery(ground: Ground) -> None:
    """Drives the pages; the ledger is only read, the provider's book judges."""
    eligible = parked(ground, MESSAGES - DOUBTED)
    doubts = doubted(ground, DOUBTED)
    people(ground)
    recovery = ground.process("recovery-1")
    console = ConsoleProcess(ground)
    try:
        console.start()
        judge(ground, console, recovery, eligible, doubts)
    finally:
        console.kill()


def judge(
    ground: Ground,
    console: ConsoleProcess,
    recovery: Process,
    eligible: list[Delivery],
    doubts: list[Delivery],
) -> None:
    names = "\n".join(one.key for one in (*eligible, *doubts))
    with closing(Operator(console, "lin")) as lin, closing(Operator(console, "bo")) as bo:
        job_page = lin.post(
            "/resend", "/resend/new", by="names", names=names, reason="provider was down"
        )
        job_id = job_page.rpartition("/")[2]
        job = await_job(ground, job_id, lambda j: j.state is JobState.PREVIEW, "the preview")
        assert (job.items, job.eligible) == (MESSAGES, len(eligible))
        count = {"typed": str(job.eligible), "reason": "provider is back"}
        lin.post(f"{job_page}/start", job_page, signature=lin.signature(job_page), **count)
        approval = {"signature": bo.signature(job_page), "reason": "agreed"}
        bo.post(f"{job_page}/approve", job_page, **approval)
    third, half = len(eligible) // 3, len(eligible) // 2
    await_(lambda: len(accepted(ground)) >= third, LIMIT_S, "a third was sent")
    console.kill()
    recalled = sorted(eligible, key=lambda one: one.key)[-RECALLED:]  # the last ones of the job
    recall(ground, recalled)
    await_(lambda: len(accepted(ground)) >= half, LIMIT_S, "half was sent")
    recovery.kill()
    recovery.wait()
    ground.process("recovery-2")
    console.start()
    await_job(ground, job_id, lambda j: j.is_over, "the end of the job")
    check(ground, eligible, doubts, recalled)
    with closing(Operator(console, "lin")) as lin:
        assert "DONE" in lin.page(job_page)


def recall(ground: Ground, items: list[Delivery]) -> None:
    """Recalls each as `hongyan recall` does."""
    with ExitStack() as stack:
        opened = open_recalling(ground.settings, stack, lambda: False)
        for one in items:
            opened.recalling.run(Kind.MESSAGE, one.notification.id, opened.life_ms)


def check(
    ground: Ground, eligible: list[Delivery], doubts: list[Delivery], recalled: list[Delivery]
) -> None:
    """Each eligible delivery once and no other. A recalled one is not sent, unless its call was under way
    when the recall came; then the ledger says so, and it is sent once."""
    book = accepted(ground)
    gone = {one.key for one in recalled}
    wanted = {one.key for one in eligible} - gone
    assert {key: book[key] for key in wanted if book[key] != 1} == {}
    rows = {key: ground.ledger.queries().by_key(key) for key in gone}
    sent = {key for key, row in rows.items() if row and row.state is State.SENT}
    assert {key for key in gone if book[key]} == sent
    assert len(sent) <= len(gone) // 2, "most were recalled before they were handed over"
    assert set(book) == wanted | sent, "a delivery in doubt was sent, or a stranger"
    assert max(book.values()) == 1
    assert not [one for one in doubts if book[one.key]]
