"""The judge of a fault run: what the provider's ledger and ours say of every delivery. Pure.

    SENT            accepted at least once
    REJECTED        never accepted
    PARKED          no answer that may hide an acceptance came before, or nothing may follow it by policy
    anything else   not an end

Doubled is what was accepted more than once. Where the provider has a dedup window or a query nothing is;
elsewhere only what the policy chose: in a lane that sends again what is in doubt the call is made again, in
the others (`at_most_once`, `unknown = "park"`) nothing follows it. Where the query proves absence alone
(Twilio) what was never accepted is not in doubt, and where it proves presence alone (Tencent, contexts
switched on) what was accepted is not; the rest is as elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from idempotency.recovery.contract import TTL_IN_DOUBT
from simulator import LedgerRecord
from tests.chaos.faults_plan import RESENT, Case
from tests.chaos.faults_proofs import ABSENCE, NONE, PRESENCE
from tests.harness.books import Row

SENT: Final = frozenset({"SENT", "DELIVERED", "UNDELIVERED"})
ENDED: Final = SENT | {"REJECTED", "PARKED"}
SPENT: Final = "attempts_spent"
UNPROVEN: Final = "unproven"
_SHOWN: Final = 6
"""Answers in a problem's text, the last ones."""


class Seen(NamedTuple):
    """One request for one receiver, as the provider's ledger has it."""

    accepted: bool
    answer: str
    doubtful: bool
    """Whether who asked could not know what became of it."""


@dataclass
class Account:
    """What became of one adapter's deliveries."""

    provider: str
    proof: str
    """How an attempt in doubt is settled, see tests/chaos/faults_proofs.py."""
    deliveries: int = 0
    accepted: int = 0
    """Accepted once or more."""
    doubted: int = 0
    """Met at least one answer that left it in doubt."""
    retried: int = 0
    """Requests after the first."""
    resent: int = 0
    """Requests that may have doubled it, where nothing proves what became of the one before."""
    doubled: int = 0
    explained: int = 0
    """Of those doubled, by policy."""
    lost: int = 0
    rejected: int = 0
    parked: int = 0
    parked_accepted: int = 0
    """Of those parked, what the provider has: a person cannot tell from here."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Of those parked."""
    seconds: float = 0.0
    """From the first one's making to the last one's end."""
    problems: list[str] = field(default_factory=list)


class Judge:
    """One adapter's. `doubtful` tells of an answer as the provider's ledger words it."""

    def __init__(self, provider: str, proof: str, doubtful: Callable[[str], bool]) -> None:
        self.account = Account(provider, proof)
        self._doubtful = doubtful

    def judge(
        self,
        cases: Iterable[Case],
        rows: Mapping[str, Row],
        records: Mapping[str, Sequence[LedgerRecord]],
    ) -> Account:
        """`rows` by delivery key, `records` by the case's `wire`, in the order of arrival."""
        kept: list[Row] = []
        for case in cases:
            row, seen = rows.get(case.key), self._seen(records.get(case.wire, ()))
            self._count(case, seen)
            self._judge_end(case, row, seen)
            self._judge_doubles(case, seen)
            self._judge_policy(case, row, seen)
            kept += [row] if row is not None else []
        if kept:
            first, last = min(r.created_at for r in kept), max(r.updated_at for r in kept)
            self.account.seconds = round((last - first) / 1_000, 1)
        return self.account

    def _seen(self, records: Iterable[LedgerRecord]) -> list[Seen]:
        """A query that proves absence leaves nothing in doubt before the first acceptance; one that proves
        presence leaves in doubt what was not accepted."""
        found, had, proof = [], False, self.account.proof
        for one in records:
            had = had or one.accepted
            proven = one.accepted if proof == PRESENCE else proof == ABSENCE and not had
            doubtful = not proven and self._doubtful(one.answer)
            found.append(Seen(one.accepted, one.answer, doubtful))
        return found

    @property
    def _proven(self) -> bool:
        """Whether what became of a delivery can be found out."""
        return self.account.proof not in (NONE, ABSENCE, PRESENCE)

    def _count(self, case: Case, seen: Sequence[Seen]) -> None:
        account = self.account
        account.deliveries += 1
        account.accepted += any(one.accepted for one in seen)
        account.doubted += any(one.doubtful for one in seen)
        account.retried += max(len(seen) - 1, 0)
        account.resent += self._resent(seen)

    def _resent(self, seen: Sequence[Seen]) -> int:
        """Requests that may have doubled it. What follows a doubt is one until it is accepted, whatever is
        answered in between."""
        if self._proven:
            return 0
        doubts = (place for place, one in enumerate(seen) if one.doubtful)
        return len(seen) - 1 - next(doubts, len(seen) - 1)

    def _judge_end(self, case: Case, row: Row | None, seen: Sequence[Seen]) -> None:
        """Whether both ledgers say the same."""
        account, accepted = self.account, any(one.accepted for one in seen)
        state = row.state if row is not None else "not there"
        account.rejected += state == "REJECTED"
        if state == "PARKED" and row is not None:
            self._judge_parked(case, row, seen)
        elif state not in ENDED:
            account.lost += not accepted
            self._say(case, row, seen, "this is no end")
        elif state in SENT and not accepted:
            account.lost += 1
            self._say(case, row, seen, "the provider never accepted it")
        elif state == "REJECTED" and accepted:
            self._say(case, row, seen, "the provider has it")
        elif state == "REJECTED" and (not seen or seen[-1].doubtful):
            account.lost += 1
            self._say(case, row, seen, "the provider did not refuse it")

    def _judge_parked(self, case: Case, row: Row, seen: Sequence[Seen]) -> None:
        account, doubted = self.account, any(one.doubtful for one in seen)
        account.parked += 1
        account.parked_accepted += any(one.accepted for one in seen)
        account.reasons[(row.reason or "").partition(":")[0]] += 1
        if not doubted and not (row.reason or "").startswith(SPENT):
            self._say(case, row, seen, "parked, and nothing about it was in doubt")
        if self._proven and (row.reason or "").startswith(UNPROVEN):
            self._say(case, row, seen, f"left unproven, and there is a {account.proof}")
        if not doubted and any(one.accepted for one in seen):
            self._say(case, row, seen, "parked, and the provider had said that it has it")

    def _judge_doubles(self, case: Case, seen: Sequence[Seen]) -> None:
        """Each acceptance but the last must have been hidden from us, and the lane want it again."""
        account, accepted = self.account, [one for one in seen if one.accepted]
        if len(accepted) < 2:
            return
        account.doubled += 1
        by_policy = not self._proven and case.kind in RESENT
        if by_policy and all(one.doubtful for one in accepted[:-1]):
            account.explained += 1
        else:
            self._say(case, None, seen, f"accepted {len(accepted)} times")

    def _judge_policy(self, case: Case, row: Row | None, seen: Sequence[Seen]) -> None:
        """Without proof: resent, or left alone; exactly as the lane wants it."""
        if self._proven or row is None or not any(one.doubtful for one in seen):
            return
        if case.kind not in RESENT:
            if any(one.doubtful for one in seen[:-1]):
                self._say(case, row, seen, "to be parked in doubt, and called again")
            if row.state != "PARKED":
                self._say(case, row, seen, "in doubt: to be parked")
        elif seen[-1].doubtful and not _is_over(row):
            self._say(case, row, seen, "in doubt: to be sent again")

    def _say(self, case: Case, row: Row | None, seen: Sequence[Seen], what: str) -> None:
        stands = f"{row.state} ({row.reason})" if row is not None else ""
        answers = ", ".join(f"{one.answer}{'+' if one.accepted else ''}" for one in seen[-_SHOWN:])
        about = " ".join(part for part in (case.provider, case.kind, case.key, stands) if part)
        self.account.problems.append(
            f"{about}: {what}; the provider's answers: {answers or 'none'}"
        )


def _is_over(row: Row) -> bool:
    """Whether its attempts or its time are spent, so that nothing follows in any lane."""
    reason = row.reason or ""
    late = reason == TTL_IN_DOUBT and row.updated_at >= row.expires_at
    return late or reason.startswith(SPENT)
