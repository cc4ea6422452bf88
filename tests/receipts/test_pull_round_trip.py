"""Pulled over the provider's real protocol: signed, taken from its queue, applied to the ledger."""

from pathlib import Path

import msgspec

from channels.channel import Call
from channels.engine import Engine
from channels.http_client.transport import Transport
from idempotency.receipts.sql import open_receipts
from idempotency.sql_ledger import SqlLedger
from message.delivery import deliveries_of
from message.outcomes import Accepted
from message.states import Event
from receipts.metrics import ReceiptMetrics
from receipts.puller import Puller
from receipts.sources import ReceiptSource
from simulator import ECHOING
from tests.conformance.samples import sample
from tests.harness.simulators import spawn
from tests.idempotency.making import NOON, World, claimed, settle

NUMBERS = 150
PULL_S = 60.0


def test_a_queue_is_emptied_into_the_ledger_and_proves_what_was_in_doubt(
    world: World, ledger: SqlLedger, tmp_path: Path
) -> None:
    of = sample("tencent_sms")
    assert of is not None
    receivers = [of.notification(n).receivers[0] for n in range(NUMBERS)]
    whole = msgspec.structs.replace(of.notification(0), receivers=receivers)
    items = claimed(ledger, *deliveries_of(whole, b"{}", expires_at=NOON + 60_000))
    for one in items:
        one.account, one.call_key = "tencent_sms", items[0].key
    receipts = open_receipts(ledger, world.settings, lambda: world.now)
    transport = Transport()
    with spawn(tmp_path, fsync=False, lists=ECHOING) as simulator:
        account = of.account(simulator.url)
        outcomes = Engine(transport).send(of.channel, Call(account, items), 10.0)
        # The first one's answer is lost: it is known by the call's key, which is its own.
        settle(ledger, items[0], Event.UNKNOWN, reason="timeout")
        for one, outcome in zip(items[1:], outcomes[1:], strict=True):
            assert isinstance(outcome, Accepted)
            settle(ledger, one, Event.ACCEPTED, provider_id=outcome.provider_id)
        puller = Puller(
            ReceiptSource(account, pull=True),
            transport,
            receipts.store,
            every_s=PULL_S,
            on_stored=lambda: None,
            metrics=ReceiptMetrics(),
        )
        assert [puller.run_once() for _ in range(3)] == [0.0, PULL_S, PULL_S]
    transport.close()
    assert len(receipts.match().verdicts) == NUMBERS
    assert set(world.states().values()) == {"DELIVERED"}
