"""An account paused under traffic: it sends nothing, nothing is lost, and no attempt is burnt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from backends.settings import DatabaseSettings, Settings
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.states import State
from simulator import Faults
from tests.harness import LANE, Fleet, await_, notifications
from tests.harness.notifications import webhook
from tests.harness.simulators import spawn

MakeFleet = Callable[..., Fleet]


def ledger_of(fleet: Fleet) -> SqlLedger:
    return open_ledger(Settings(database=DatabaseSettings(url=fleet.ground.database_url)))


def obeyed(ledger: SqlLedger, account: str, *, paused: bool) -> bool:
    """Whether every live process shows the account as paused, or as not."""
    shown = [one.snapshot for one in ledger.fleet_status().processes() if not one.lost]
    return bool(shown) and all(
        one is not None and account in one.accounts and one.accounts[account].paused is paused
        for one in shown
    )


def waiting(ledger: SqlLedger) -> int:
    """Deliveries of the lane that live workers have read and not claimed."""
    shown = [one.snapshot for one in ledger.fleet_status().processes() if not one.lost]
    return sum(one.lanes[LANE].waiting for one in shown if one is not None)


def test_a_lane_whose_only_account_is_paused_holds_and_comes_back_without_a_burnt_attempt(
    fleet: MakeFleet,
) -> None:
    one = fleet(policy={LANE: {"threads": 2}})
    (worker,) = one.start(1)
    with closing(ledger_of(one)) as ledger:
        pauses = ledger.account_pauses()
        account = "demo"
        pauses.pause(account, "", None, author="li", reason="test")
        await_(lambda: obeyed(ledger, account, paused=True), what="the worker obeys")
        one.send(notifications(20))
        await_(lambda: waiting(ledger) > 0, what="its deliveries are read and wait")
        assert [r for r in one.provider.records() if r.key in one.keys] == []
        assert worker.running, "it keeps its membership"
        pauses.resume(account, "", author="li", reason="mended")
        await_(
            lambda: one.books.states(one.keys) == {State.SENT: len(set(one.keys))},
            what="everything is sent",
        )
    assert one.verify().problems == []


def test_the_other_account_takes_over_under_load_and_nothing_is_lost_or_doubled(
    fleet: MakeFleet, tmp_path: Path
) -> None:
    with spawn(tmp_path) as provider:
        one = fleet(
            policy={LANE: {"threads": 2, "accounts": {"demo": 9, "spare": 1}}},
            provider=provider,
            accounts={
                "demo": webhook(f"{provider.url}/demo"),
                "spare": webhook(f"{provider.url}/spare"),
            },
            settings={
                "recovery": {"lanes": [LANE], "poll_s": 0.3, "health_address": "127.0.0.1:0"}
            },
        )
        provider.control(rules=[Faults(latency_ms="20")])
        recovery = one.recovery()
        one.start(2)
        recovery.wait_ready()
        with closing(ledger_of(one)) as ledger:
            one.send(notifications(200))
            await_(lambda: one.books.states(one.keys)["SENT"] > 20, what="the lane is under load")
            ledger.account_pauses().pause("demo", "", None, author="li", reason="test")
            await_(lambda: obeyed(ledger, "demo", paused=True), what="all three obey")
            before = set(one.keys)
            one.send(notifications(100))
            await_(
                lambda: one.books.states(one.keys) == {State.SENT: len(set(one.keys))},
                what="everything is sent",
            )
        after = set(one.keys) - before
        rows = one.books.query("SELECT delivery_key, account, attempt FROM deliveries")
        assert {account for key, account, _ in rows if key in after} == {"spare"}
        assert {attempt for _, _, attempt in rows} == {1}, "a pause burns no attempt"
        assert one.verify().problems == []
