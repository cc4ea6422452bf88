"""The judge of fault runs, on made-up books: good ones pass, and every broken promise is seen."""

from __future__ import annotations

import pytest

from channels.simulator import Faults, Record
from channels.simulator.options import Rules
from tests.chaos.faults_judge import Account, Judge
from tests.chaos.faults_plan import (
    ERRORS,
    RESET,
    Case,
    Extent,
    cases,
    chosen,
    doubtful,
    rules,
    traffic,
)
from tests.chaos.faults_run import proof_of
from tests.harness.books import Row

T0 = 1_790_000_000_000
LEAST, MOST = "notice", "marketing"


def judged(
    state: str,
    *answers: str,
    kind: str = LEAST,
    proof: str = "",
    reason: str = "",
) -> Account:
    """One delivery that stands so, after these answers (`200+`: accepted)."""
    case = Case("key", "sms", kind, "to")
    records = [record(call, call, "to", answer) for call, answer in enumerate(answers, 1)]
    rows = {"key": row(state, reason)} if state else {}
    judge = Judge("sms", proof, {"reset", "500"}.__contains__)
    return judge.judge([case], rows, {"to": records})


def record(seq: int, call: int, receiver: str, answer: str) -> Record:
    return Record(
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


def row(state: str, reason: str) -> Row:
    return Row("key", "m", "sms.notice", state, reason or None, 1, None, None, T0, T0, None, T0)


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
    (judged("SENT", "reset+", "200+", kind=MOST), "called again while in doubt"),
    (judged("SENT", "reset+", kind=MOST), "to be parked"),
    (judged("PARKED", "reset+", reason="unproven"), "to be sent again"),
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
        assert {case.kind for case in mine} == {LEAST, MOST}


def test_how_a_doubt_can_be_settled_is_read_off_the_adapter() -> None:
    proofs = {one.provider: proof_of(one.channel) for one in ALL}
    assert proofs["tencent_sms"] == proofs["aliyun_sms"] == "query"
    assert proofs["twilio"] == "absence"
    assert proofs["feishu"] == proofs["resend"] == proofs["wecom"] == "window"
    assert proofs["smtp"] == proofs["fcm"] == proofs["wecom_robot"] == ""


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
