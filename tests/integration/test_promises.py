"""What a lane promises, and what a worker makes of odd input and odd configuration."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from simulator import Faults
from tests.harness import LANE, Fleet, await_, notification, notifications

MakeFleet = Callable[..., Fleet]


def test_one_id_twice_with_another_body_is_one_send_and_a_conflict_in_the_trace(
    fleet: MakeFleet,
) -> None:
    one = fleet(partitions=1)
    one.worker().wait_ready()
    first = notification(receivers=["same"])
    other = notification(id=first.id, receivers=["same"], content={"text": "changed"})
    one.send([first])
    one.await_settled()
    one.wire.send([other, first])
    one.await_committed()
    assert [s.key for s in one.provider.records()] == one.keys
    one.verify()
    await_(
        lambda: (
            sorted(s for s in _stages(one, first.id) if s in ("conflict", "duplicate"))
            == ["conflict", "duplicate"]
        ),
        what="the trace tells one from the other",
    )


def test_a_receiver_listed_twice_counts_once_and_each_other_once(fleet: MakeFleet) -> None:
    one = fleet()
    one.worker().wait_ready()
    many = notification(receivers=["a", "b", "a", "c", "b"])
    one.send([many])
    one.await_states(SENT=3)
    assert sorted(r.receiver for r in one.provider.records()) == ["a", "b", "c"]
    one.await_committed()
    one.verify()


def test_a_new_receiver_under_an_old_id_is_a_new_delivery(fleet: MakeFleet) -> None:
    one = fleet()
    one.worker().wait_ready()
    first = notification(receivers=["a"])
    one.send([first])
    one.await_states(SENT=1)
    one.send([notification(id=first.id, receivers=["a", "b"])])
    one.await_states(SENT=2)
    one.await_committed()
    assert one.verify().doubled == []


def test_every_outcome_of_a_provider_has_its_state(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"timeout_ms": 5_000}})
    rules = [
        Faults(receiver="ok"),
        Faults(receiver="bad", errors={"400": 1.0}),
        Faults(receiver="later", errors={"503": 1.0}, retry_after="60"),
        Faults(receiver="broken", errors={"500": 1.0}),
        Faults(receiver="reset", reset=1.0),
        Faults(receiver="hung", hang=1.0),
    ]
    one.provider.control(rules=rules)
    one.worker().wait_ready()
    others = [rule.receiver for rule in rules if rule.receiver != "later"]
    one.send(notification(receivers=[receiver]) for receiver in others)
    one.await_states(SENT=1, REJECTED=1, UNKNOWN=3)
    one.send([notification(receivers=["later"])])  # its answer shuts the account for a minute
    one.await_states(SENT=1, REJECTED=1, RETRY=1, UNKNOWN=3)
    one.await_committed()
    one.verify()


def test_a_provider_that_refuses_connections_burns_nothing_in_doubt(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"retry": {"base_ms": 3_600_000, "cap_ms": 3_600_000}}})
    one.provider.control(refuse_new=True)
    one.worker().wait_ready()
    one.send(notifications(10))
    one.await_states(RETRY=10)
    one.await_committed()
    one.verify()


def test_a_worker_says_that_no_recovery_takes_what_is_due(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"retry": {"base_ms": 10}}}, settings={"alerts": {"overdue_s": 1}})
    worker = one.worker().wait_ready()
    one.slow(0, errors={"425": 1.0})
    one.send(notifications(2))
    await_(lambda: one.books.states()["RETRY"] == 2, what="both wait for recovery")

    def told() -> list[dict[str, Any]]:
        return [e for e in worker.events("alert") if e["rule"] == "recovery_overdue"]

    await_(told, what="the worker says so")
    assert (told()[0]["lane"], told()[0]["about"]) == (LANE, "due")
    assert worker.metric("recovery_overdue_seconds", lane=LANE, about="due") >= 1


def test_best_effort_keeps_no_ledger_and_its_offset_passes_at_hand_over(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"guarantee": "best_effort", "timeout_ms": 30_000}})
    one.slow(3_000)
    worker = one.worker().wait_ready()
    one.send(notifications(8))
    one.await_committed()
    assert worker.metric("settled") == 0, "the offset passed before any answer"
    worker.await_metric("settled", 8, outcome="SENT")
    assert one.books.rows() == {}
    assert one.verify().accepted == 8


def test_at_most_once_leaves_in_doubt_what_may_have_been_sent_and_never_repeats_it(
    fleet: MakeFleet,
) -> None:
    one = fleet(policy={LANE: {"guarantee": "at_most_once"}}, session_timeout_s=3, lease_s=2)
    one.slow(300)
    victim, _ = one.start(2)
    one.send(notifications(60))
    await_(lambda: one.books.in_flight_of(victim.id) > 4, what="it is under way")
    victim.kill()
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert verdict.doubled == []
    assert verdict.in_doubt > 0


def test_a_lane_thread_that_dies_is_replaced_and_its_delivery_is_in_doubt(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"threads": 2}})
    worker = one.worker(fault="lane_thread_dies").wait_ready()
    one.send(notifications(5, receivers=lambda n: [f"fatal-{n}"]))
    one.await_states(UNKNOWN=5)
    one.send(notifications(20))
    one.await_states(UNKNOWN=5, SENT=20)
    assert one.books.reasons("UNKNOWN") == {"thread_died": 5}
    worker.await_metric("threads_replaced", 5)
    assert "killed by the test" in worker.events("lane_thread_died")[0]["cause"]
    one.await_committed()
    one.verify()
    assert worker.stop() == 0


def test_a_wrong_configuration_or_policy_refuses_to_start_and_says_where(fleet: MakeFleet) -> None:
    one = fleet(make_topics=False)
    misspelt = one.folder / "misspelt.toml"
    misspelt.write_text('[lanes."webhook.notice"]\nthreads = 4\ngurantee = "at_least_once"\n')
    mistakes = {
        "kafka.group_protocol": {"KAFKA__GROUP_PROTOCOL": "sometimes"},
        "database.url": {"DATABASE__URL": "oracle://nowhere"},
        "worker.lease_s": {"WORKER__LEASE_S": "-1"},
        "no lane matches 'pigeon.*'": {"WORKER__LANES": "pigeon.*"},
        "accounts.demo.provider": {"ACCOUNTS__DEMO__PROVIDER": "pigeon"},
        "nowhere.toml": {"POLICY__FILE": "nowhere.toml"},
        "misspelt.toml:3": {"POLICY__FILE": str(misspelt)},
    }
    workers = {said: one.worker(**environment) for said, environment in mistakes.items()}
    for said, worker in workers.items():
        assert worker.wait() == 2, said
        assert said in worker.log_text()
        assert "Traceback" not in worker.log_text(), said


def test_one_worker_serves_only_the_lanes_it_was_given(fleet: MakeFleet) -> None:
    other = "webhook.marketing"
    one = fleet(lanes=[LANE, other])
    one.worker(lanes=["*.notice"]).wait_ready()
    one.send(notifications(3))
    one.send(notifications(3, other))
    one.await_states(SENT=3)
    assert {row.lane for row in one.books.rows().values()} == {LANE}
    one.worker(lanes=["*.marketing"]).wait_ready()
    one.await_states(SENT=6)
    one.verify()


def _stages(one: Fleet, message_id: str) -> list[str]:
    """The stages that the trace topic has of one message."""
    events = [event for value in one.wire.trace() for event in _events(value)]
    return [event["stage"] for event in events if event.get("message_id") == message_id]


def _events(value: bytes) -> list[dict[str, str]]:
    found = json.loads(value)
    return found if isinstance(found, list) else [found]
