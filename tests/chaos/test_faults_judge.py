"""The judge of fault runs, on made-up books: good ones pass, and every broken promise is seen."""

from __future__ import annotations

import pytest

from message.outcomes import Limit
from simulator import Faults, LedgerRecord
from simulator.options import Rules
from simulator.wire import Lists
from tests.chaos.faults_judge import Account, Judge
from tests.chaos.faults_plan import (
    ERRORS,
    KINDS,
    RESENT,
    RESET,
    Case,
    Extent,
    accounts_of,
    cases,
    chosen,
    doubtful,
    lanes_of,
    policy_of,
    rules,
    traffic,
)
from tests.chaos.faults_proofs import TTL_MS, behaviours, life_ms, lists, proof_of
from tests.harness.books import Row

T0 = 1_790_000_000_000
LEAST, PARK, MOST = "notice", "verification", "marketing"
ENDS = T0 + 60_000


def judged(
    state: str,
    *answers: str,
    kind: str = LEAST,
    proof: str = "",
    reason: str = "",
    at: int = T0,
) -> Account:
    """One delivery that stands so, after these answers (`200+`: accepted)."""
    case = Case("key", "sms", kind, "to")
    records = [record(call, call, "to", answer) for call, answer in enumerate(answers, 1)]
    rows = {"key": row(state, reason, at)} if state else {}
    judge = Judge("sms", proof, {"reset", "500"}.__contains__)
    return judge.judge([case], rows, {"to": records})


def record(seq: int, call: int, receiver: str, answer: str) -> LedgerRecord:
    return LedgerRecord(
        seq=seq,
        at_ms=T0 + seq,
        key=f"key-of-{receiver}",
        path="/sms",
        id="id",
        receiver=receiver,
        attempt=0,
        digest="d",
        accepted=answer.endswith("+"),
        answer=answer.removesuffix("+"),
        protocol="sms",
        call=call,
    )


def row(state: str, reason: str, at: int) -> Row:
    return Row("key", "m", "sms.notice", state, reason or None, 1, None, None, T0, at, None, ENDS)


GOOD = [
    judged("SENT", "200+"),
    judged("SENT", "reset+", "200+"),
    judged("SENT", "500", "200+"),
    judged("SENT", "reset+", proof="query"),
    judged("SENT", "reset+", "duplicate", proof="window"),
    judged("REJECTED", "bad_number"),
    judged("REJECTED", "500", "bad_number"),
    judged("PARKED", "reset+", "bad_number", reason="refused_in_doubt:bad_number"),
    judged("PARKED", "busy", "busy", reason="attempts_spent:busy"),
    judged("PARKED", "reset+", kind=MOST, reason="unproven"),
    judged("PARKED", "500", kind=MOST, reason="unproven"),
    judged("PARKED", "reset+", kind=PARK, reason="unproven"),
    judged("PARKED", "busy", "500", kind=PARK, reason="unproven"),
    judged("PARKED", "reset+", reason="ttl_in_doubt", at=ENDS),
]
BROKEN = [
    (judged(""), "this is no end"),
    (judged("UNKNOWN", "reset+"), "this is no end"),
    (judged("RETRY", "busy"), "this is no end"),
    (judged("SENT", "busy"), "never accepted"),
    (judged("SENT"), "never accepted"),
    (judged("REJECTED", "reset+", "bad_number"), "the provider has it"),
    (judged("REJECTED"), "did not refuse it"),
    (judged("PARKED", "busy", reason="unproven"), "nothing about it was in doubt"),
    (judged("PARKED", "200+", reason="attempts_spent"), "had said that it has it"),
    (judged("PARKED", "reset+", proof="query", reason="unproven"), "left unproven"),
    (judged("SENT", "200+", "200+"), "accepted 2 times"),
    (judged("SENT", "reset+", "200+", proof="query"), "accepted 2 times"),
    (judged("SENT", "reset+", "200+", proof="window"), "accepted 2 times"),
    (judged("SENT", "reset+", "200+", kind=MOST), "called again"),
    (judged("SENT", "reset+", kind=MOST), "to be parked"),
    (judged("SENT", "reset+", "200+", kind=PARK), "called again"),
    (judged("SENT", "reset+", "200+", kind=PARK), "accepted 2 times"),
    (judged("SENT", "reset+", kind=PARK), "to be parked"),
    (judged("PARKED", "reset+", reason="unproven"), "to be sent again"),
    (judged("PARKED", "reset+", reason="ttl_in_doubt", at=ENDS - 1), "to be sent again"),
]


@pytest.mark.parametrize("account", GOOD)
def test_what_was_promised_is_no_problem(account: Account) -> None:
    assert not account.problems


@pytest.mark.parametrize(("account", "said"), BROKEN)
def test_a_broken_promise_is_told(account: Account, said: str) -> None:
    assert any(said in problem for problem in account.problems), account.problems


def test_doubles_lost_and_resent_are_counted() -> None:
    doubled, lost = judged("SENT", "reset+", "reset+", "200+"), judged("SENT", "busy")
    assert (doubled.doubled, doubled.explained, doubled.resent, doubled.retried) == (1, 1, 2, 2)
    assert (lost.lost, lost.accepted, doubled.lost) == (1, 0, 0)


@pytest.mark.parametrize(
    ("answers", "proof", "resent"),
    [
        (("200+",), "", 0),
        (("busy", "reset+", "200+"), "", 1),
        (("reset+", "busy", "busy", "200+"), "", 3),
        (("reset+", "duplicate"), "window", 0),
    ],
)
def test_what_may_have_doubled_it_is_every_call_after_a_doubt(
    answers: tuple[str, ...], proof: str, resent: int
) -> None:
    found = judged("SENT", *answers, proof=proof)
    assert found.resent == resent


ALL = chosen(Extent())
NAMES = [one.provider for one in ALL]


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_of_every_adapter_can_be_played_and_add_up(name: str) -> None:
    (sample,) = [one for one in ALL if one.provider == name]
    sends, asks = rules([sample], Extent())
    assert Rules([sends, asks]).ready
    assert sends.reset == RESET
    parts = (sends.errors, sends.codes, sends.receiver_codes)
    assert sum(sum(part.values()) for part in parts) == pytest.approx(ERRORS)
    assert asks.method == "GET"
    assert not any(asks_too(other, sends) for other in rules(ALL, Extent()))


def asks_too(one: Faults, other: Faults) -> bool:
    """Whether a rule is met by another adapter's requests."""
    return one.path != other.path and other.path.startswith(one.path)


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_that_is_played_is_known_for_what_it_is(name: str) -> None:
    (sample,) = [one for one in ALL if one.provider == name]
    sends, _ = rules([sample], Extent())
    assert doubtful(sample.channel, "reset")
    assert all(doubtful(sample.channel, status) for status in sends.errors)
    kinds = {row.code: row.kind for row in sample.channel.errors}
    for code in (*sends.codes, *sends.receiver_codes):
        assert doubtful(sample.channel, code) is (kinds.get(code) == "unknown")
        found = sample.channel.errors.row(code)
        assert found is not None
        assert not found.account
        # By chance, and not by a limit, an account would be made to wait for most of the run.
        assert found.limit is Limit.RECEIVER or not found.limit or (found.delay_ms or 0) <= 1_000


def test_every_adapter_gets_its_share_under_names_of_its_own() -> None:
    extent = Extent(messages=120, seed=3)
    by_name = {one.provider: one for one in ALL}
    found: dict[str, list[Case]] = {name: [] for name in NAMES}
    for notification in traffic(ALL, extent):
        name = str(notification.account)
        found[name] += cases(by_name[name], notification)
    for mine in found.values():
        assert len(mine) == 120
        assert len({case.key for case in mine}) == 120
        assert len({case.wire for case in mine}) == 120
        assert {case.kind for case in mine} == set(KINDS)


def test_a_doubt_is_settled_by_what_the_provider_shows_by_default() -> None:
    proofs = {one.provider: proof_of(one, switched=False) for one in ALL}
    assert {name for name, proof in proofs.items() if proof == "query"} == {"aliyun_sms"}
    assert {name for name, proof in proofs.items() if proof == "absence"} == {"twilio"}
    assert {name for name, proof in proofs.items() if proof == "window"} == {
        "dingtalk",
        "feishu",
        "resend",
        "wechat_official",
    }
    switched = {one.provider: proof_of(one, switched=True) for one in ALL}
    changed = {name: proof for name, proof in switched.items() if proof != proofs[name]}
    assert changed == {"tencent_sms": "presence", "wecom": "window"}


def test_a_run_stands_on_what_the_providers_show_by_default() -> None:
    """And on the lag that each adapter believes in: none is set to nothing as in other tests."""
    assert lists(switched=False) == Lists()
    accounts = accounts_of(ALL, {"http": "http://127.0.0.1", "smtp": "smtp://127.0.0.1"})
    assert not [name for name, table in accounts.items() if "query_lag_s" in table]
    assert "duplicate_check" not in accounts["wecom"]
    shortened = {name for one in behaviours().values() for name in one}
    assert shortened == {"limits"}, "what else is lifted is to be told in docs/faults.md"


def test_every_way_of_a_lane_to_end_a_doubt_is_in_the_plan() -> None:
    policy = policy_of(lanes_of(ALL), threads=1)
    assert policy["sms.notice"]["guarantee"] == "at_least_once"
    assert policy["sms.verification"]["unknown"] == "park"
    assert policy["sms.marketing"]["guarantee"] == "at_most_once"
    assert {LEAST} == RESENT


def test_no_code_makes_a_short_lived_delivery_wait_for_most_of_its_life() -> None:
    (tencent,) = [one for one in ALL if one.provider == "tencent_sms"]
    errors = tencent.channel.errors
    for messages in (60, 5_000):
        sends, _ = rules([tencent], Extent(messages=messages))
        rows = [errors.row(code) for code in (*sends.codes, *sends.receiver_codes)]
        longest = max((row.delay_ms or 0) for row in rows if row is not None)
        assert longest * 20 <= life_ms("tencent_sms", messages)


def test_what_its_provider_never_shows_is_short_lived_and_goes_first() -> None:
    found = list(traffic(ALL, Extent(messages=8)))
    short = [one for one in found if (one.ttl_ms or 0) < TTL_MS]
    assert {one.account for one in short} == {"tencent_sms"}
    assert found[: len(short)] == short


@pytest.mark.parametrize(
    ("state", "answers", "kind", "reason"),
    [
        ("SENT", ("500", "200+"), MOST, ""),
        ("PARKED", ("500", "reset+"), MOST, "unproven"),
        ("SENT", ("reset+", "200+"), LEAST, ""),
    ],
)
def test_where_absence_alone_is_proven_only_what_was_accepted_stays_in_doubt(
    state: str, answers: tuple[str, ...], kind: str, reason: str
) -> None:
    assert not judged(state, *answers, kind=kind, proof="absence", reason=reason).problems


def test_absence_is_no_proof_of_what_was_accepted() -> None:
    assert judged("SENT", "reset+", "200+", kind=MOST, proof="absence").problems
    assert judged("SENT", "reset+", "200+", proof="absence").resent == 1
    assert judged("SENT", "500", "200+", proof="absence").resent == 0


@pytest.mark.parametrize(
    ("state", "answers", "kind", "reason"),
    [
        ("SENT", ("reset+",), MOST, ""),
        ("SENT", ("reset+",), PARK, ""),
        ("SENT", ("500", "reset+"), LEAST, ""),
        ("PARKED", ("500",), MOST, "unproven"),
    ],
)
def test_where_presence_is_proven_only_what_was_not_accepted_stays_in_doubt(
    state: str, answers: tuple[str, ...], kind: str, reason: str
) -> None:
    assert not judged(state, *answers, kind=kind, proof="presence", reason=reason).problems


def test_presence_that_is_proven_is_never_doubled_nor_parked() -> None:
    assert judged("SENT", "reset+", "200+", proof="presence").problems
    assert judged("PARKED", "reset+", kind=MOST, proof="presence", reason="unproven").problems
    assert judged("SENT", "500", "200+", proof="presence").resent == 1
