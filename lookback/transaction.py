"""One transaction as the database has it, and the terms of its kind. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from backends.lookback_settings import BizTypeSettings, LookbackSettings
from backends.settings import SettingsError
from lookback.operator import TxShown
from lookback.states import TxState
from message.lookback import PrepareRecord, day_of

_MS: Final = 1_000


class TxRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `lookback_transactions`, whose columns migration 0030 explains. The body is loaded for a
    forward alone."""

    tx_id: str
    day: int
    biz_type: str
    biz_id: str
    state: TxState
    early: str = ""
    decision: str = ""
    decided_by: str = ""
    decided_at: int | None = None
    person: str = ""
    why: str = ""
    topic: str | None = None
    msg_key: str | None = None
    headers: str | None = None
    body: bytes | None = None
    body_hash: bytes | None = None
    prepared_at: int | None = None
    reason: str = ""
    checks: int = 0
    tries: int = 0
    last_error: str = ""
    conflict: str = ""
    conflict_at: int | None = None
    lease_token: int = 0
    next_at: int | None = None
    forwarded_to: str = ""
    forwarded_at: int | None = None
    created_at: int
    updated_at: int
    version: int = 0

    @property
    def body_is_whole(self) -> bool:
        """Whether the stored message has the hash of the prepared one."""
        try:
            return self.body_hash is not None and prepared(self).body_hash == self.body_hash
        except msgspec.MsgspecError:  # headers that are no JSON object of texts
            return False


class TxTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of a kind of transaction, in milliseconds."""

    topics: tuple[str, ...]
    immunity_ms: int
    check_ms: int
    longest_pause_ms: int
    max_checks: int
    deadline_ms: int
    longest_transaction_ms: int
    grace_ms: int
    threads: int
    check: str
    """Name of its check's endpoint; empty: none."""

    @property
    def has_check(self) -> bool:
        """Whether the business can be asked."""
        return bool(self.check)

    def allows(self, topic: str) -> bool:
        """Returns whether its messages may be forwarded to this topic."""
        return any(fnmatchcase(topic, pattern) for pattern in self.topics)

    def pause_ms(self, checks: int) -> int:
        """Returns the pause after so many checks without an answer."""
        return int(min(self.check_ms * 2 ** min(max(checks - 1, 0), 30), self.longest_pause_ms))


def terms_of(settings: LookbackSettings) -> dict[str, TxTerms]:
    """Returns the terms of each kind. Raises SettingsError for a check that is not configured."""
    return {name: _terms(name, one, settings.checks) for name, one in settings.biz_types.items()}


def _terms(name: str, one: BizTypeSettings, checks: Mapping[str, object]) -> TxTerms:
    where = f"lookback.biz_types.{name}"
    if one.check and one.check not in checks:
        raise SettingsError(
            f"{where}.check: there is no [lookback.checks.{one.check}]; add it, or name another"
        )
    if one.deadline_s <= one.immunity_s:
        raise SettingsError(
            f"{where}.deadline_s: must be above immunity_s ({one.immunity_s:g}): no check came before it"
        )
    if one.check and one.deadline_s <= one.longest_transaction_s:
        raise SettingsError(
            f"{where}.deadline_s: must be above longest_transaction_s ({one.longest_transaction_s:g}): an"
            " unfenced ROLLBACK would never count"
        )
    return made_terms(one)


def made_terms(one: BizTypeSettings) -> TxTerms:
    """Returns these terms in milliseconds."""
    return TxTerms(
        topics=tuple(one.topics),
        immunity_ms=int(one.immunity_s * _MS),
        check_ms=int(one.check_s * _MS),
        longest_pause_ms=int(one.longest_pause_s * _MS),
        max_checks=one.max_checks,
        deadline_ms=int(one.deadline_s * _MS),
        longest_transaction_ms=int(one.longest_transaction_s * _MS),
        grace_ms=int(one.grace_s * _MS),
        threads=one.threads,
        check=one.check,
    )


def prepared(row: TxRow) -> PrepareRecord:
    """Returns the message of a row with a body. Raises MsgspecError for damaged headers."""
    return PrepareRecord(
        biz_type=row.biz_type,
        biz_id=row.biz_id,
        tx_id=row.tx_id,
        topic=row.topic or "",
        payload=row.body or b"",
        key=row.msg_key,
        headers=msgspec.json.decode(row.headers or "{}", type=dict[str, str]),
    )


def with_body(row: TxRow, record: PrepareRecord, now: int) -> TxRow:
    """Returns the row with the body of its prepare."""
    return msgspec.structs.replace(
        row,
        topic=record.topic,
        msg_key=record.forward_key,
        headers=msgspec.json.encode(record.headers).decode(),
        body=record.payload,
        body_hash=record.body_hash,
        prepared_at=now,
    )


def new_row(biz_type: str, biz_id: str, tx_id: str, state: TxState, now: int) -> TxRow:
    """Returns the row of a transaction that was not known before."""
    return TxRow(
        tx_id=tx_id,
        day=day_of(tx_id),
        biz_type=biz_type,
        biz_id=biz_id,
        state=state,
        created_at=now,
        updated_at=now,
    )


def shown(row: TxRow) -> TxShown:
    """Returns the row as a person sees it."""
    return TxShown(
        tx_id=row.tx_id,
        biz_type=row.biz_type,
        biz_id=row.biz_id,
        state=row.state,
        topic=row.topic or "",
        decision=row.decision or row.early,
        decided_by=row.decided_by,
        person=row.person,
        why=row.why,
        reason=row.reason,
        checks=row.checks,
        last_error=row.last_error,
        conflict=row.conflict,
        has_body=row.body_hash is not None,
        prepared_at=row.prepared_at,
        updated_at=row.updated_at,
        forwarded_to=row.forwarded_to,
    )
