"""From a send over its provider's protocol to what became of it, receipts late, doubled and reordered.

What the ledger says in the end is compared with what the simulator planned to report.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from backends.http_server.serving import bound
from backends.settings import ReceiptsSettings, Settings, TraceSettings
from channels.channel import Call
from channels.engine import Engine
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.transports import TransportRouter
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery, deliveries_of
from message.outcomes import Accepted
from message.states import Event
from receipts.parsers import PARSERS
from receipts.process import LISTEN, _opened
from receipts.push import SharedSecret
from receipts.sources import load_sources
from sending.runtime.threads import ThreadGroup
from simulator import Simulator
from simulator.receipts.formats import FORMATS
from simulator.receipts.plan import SENT, Plan, ReceiptOptions
from tests.conformance.samples import UNLIMITED, Sample, sample
from tests.harness.simulators import spawn
from tests.idempotency.making import NOON, World, claimed, settle, wait_until

SECRET = "simulator-secret"
SEED = "7"
EACH = 24
BEHAVIOURS = {**UNLIMITED, "wechat_mini": {"msgid": "true"}}
numbers = count(50_000)


def is_shared(provider: str) -> bool:
    """Returns whether the provider signs nothing: a secret stands in the callback's address."""
    return PARSERS[provider].options is SharedSecret


def checked_with(provider: str, url: str) -> dict[str, Any]:
    """`[receipts.accounts.NAME]` for the simulator's signatures."""
    if is_shared(provider):
        return {"secret": SECRET}
    of = sample(provider)
    assert of is not None
    return {name: value.replace("{url}", url) for name, value in of.receipt_keys.items()}


class Bench(NamedTuple):
    """One provider's sender, its ledger, and the simulator that reports to our endpoint."""

    of: Sample
    world: World
    ledger: SqlLedger
    engine: Engine
    simulator: Simulator
    plan: Plan

    def claimed(self, size: int = 1) -> Call:
        """A call for so many receivers, in flight."""
        each = [self.of.notification(next(numbers)) for _ in range(size)]
        whole = msgspec.structs.replace(each[0], receivers=[one.receivers[0] for one in each])
        made = claimed(self.ledger, *deliveries_of(whole, b"{}", expires_at=NOON + 60_000))
        for one in made:
            one.account, one.call_key = self.of.provider, made[0].key
        account = self.of.account(self.of.address(self.simulator))
        if self.of.provider == "twilio":
            options = msgspec.structs.replace(
                account.options, status_callback=self.plan.options.url
            )
            account = msgspec.structs.replace(account, options=options)
        return Call(account, made)

    def send(self, call: Call) -> list[str]:
        """The provider's ids."""
        outcomes = self.engine.send(self.of.channel, call, 10.0)
        assert all(isinstance(one, Accepted) for one in outcomes), outcomes
        return [str(getattr(one, "provider_id", "")) for one in outcomes]

    def wanted(self) -> dict[str, str]:
        """What the simulator reports of each receiver in the end."""
        steps = FORMATS[self.of.provider].steps
        reported = {}
        for record in self.simulator.records():
            planned = self.plan.of(f"{record.provider_id}\0{record.receiver}", steps=steps)
            (last,) = {one.status.upper() for one in planned if one.status != SENT}
            reported[record.receiver] = last
        return reported

    def pushed(self) -> int:
        counts: Mapping[str, int] = self.simulator.report(summary_only=True).summary.counts
        assert not counts.get(f"{self.of.provider}.receipts_given_up"), counts
        return counts.get(f"{self.of.provider}.receipts_taken", 0)

    def planned(self) -> int:
        steps = FORMATS[self.of.provider].steps
        records = self.simulator.records()
        return sum(
            len(self.plan.of(f"{r.provider_id}\0{r.receiver}", steps=steps)) for r in records
        )

    def states(self, deliveries: Sequence[Delivery]) -> dict[str, str]:
        found = self.world.states()
        return {one.receiver: found[one.key] for one in deliveries}


@pytest.fixture(params=sorted(FORMATS))
def bench(
    request: pytest.FixtureRequest, world: World, ledger: SqlLedger, tmp_path: Path
) -> Iterator[Bench]:
    of = sample(request.param)
    assert of is not None
    with ExitStack() as stack:
        listener = stack.enter_context(bound("127.0.0.1:0", "receipts.listen", LISTEN))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/receipts/{of.provider}"
        _serve(of, url, listener, world, ledger, stack)
        options = ReceiptOptions(
            url=f"{url}?secret={SECRET}" if is_shared(of.provider) else url,
            delay_ms="5-60",
            undelivered={"30003": 0.2, "30005": 0.1},
            doubled=0.3,
            reordered=0.5,
        )
        simulator = stack.enter_context(
            spawn(
                tmp_path,
                fsync=False,
                seed=SEED,
                credentials={of.provider: of.signs_with} if of.signs_with else {},
                behaviours=BEHAVIOURS,
                receipts={of.provider: options},
            )
        )
        wires = TransportRouter()
        stack.callback(wires.close)
        recorder = ExchangeRecorder(wires)
        engine = Engine(recorder, OwnTokens(recorder, 10.0))
        yield Bench(of, world, ledger, engine, simulator, Plan(of.provider, options, SEED))


def _serve(
    of: Sample, url: str, listener: Any, world: World, ledger: SqlLedger, stack: ExitStack
) -> None:
    settings = Settings(
        database=world.settings.database,
        trace=TraceSettings(kafka=False),
        accounts={of.provider: {"provider": of.provider, **of.account_table}},
        receipts=ReceiptsSettings(
            match_s=0.2, accounts={of.provider: checked_with(of.provider, url)}
        ),
    )
    sources, threads = load_sources(settings), ThreadGroup()
    server = _opened(settings, sources, ledger, "receipts-1", stack, threads)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join()

    stack.callback(stop)


def test_what_the_provider_reports_is_what_the_ledger_says_in_the_end(bench: Bench) -> None:
    settled, waiting = [], []
    for turn in range(EACH):
        call = bench.claimed()
        (provider_id,) = bench.send(call)
        if turn % 2:
            settle(bench.ledger, call.deliveries[0], Event.ACCEPTED, provider_id=provider_id)
            settled.append(call.deliveries[0])
        else:
            waiting.append((call.deliveries[0], provider_id))
    wait_until(lambda: bench.pushed() == bench.planned(), timeout_s=30)
    wanted = bench.wanted()
    assert {"DELIVERED", "UNDELIVERED"} == set(wanted.values())
    early = [one for one, _ in waiting]
    assert set(bench.states(early).values()) == {"IN_FLIGHT"}
    for one, provider_id in waiting:
        settle(bench.ledger, one, Event.ACCEPTED, provider_id=provider_id)
    wait_until(lambda: bench.states([*settled, *early]) == wanted, timeout_s=30)


def test_receipts_of_one_call_for_many_find_each_receiver(bench: Bench) -> None:
    call = bench.claimed(min(bench.of.channel.max_batch, 20))
    for one, provider_id in zip(call.deliveries, bench.send(call), strict=True):
        settle(bench.ledger, one, Event.ACCEPTED, provider_id=provider_id)
    wait_until(lambda: bench.states(call.deliveries) == bench.wanted(), timeout_s=30)


def test_a_delivery_in_doubt_is_proved_sent_where_the_receipt_names_our_call(
    bench: Bench,
) -> None:
    call = bench.claimed()
    bench.send(call)
    settle(bench.ledger, call.deliveries[0], Event.UNKNOWN, reason="timeout")
    wait_until(lambda: bench.pushed() == bench.planned(), timeout_s=30)
    if bench.of.receipts_name_call:
        wait_until(lambda: bench.states(call.deliveries) == bench.wanted(), timeout_s=30)
    else:  # these name only what the answer would have told us
        assert set(bench.states(call.deliveries).values()) == {"UNKNOWN"}
