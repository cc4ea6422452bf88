"""Plans a change of the policy, and puts it in force by compare-and-set.

A plan compares a text with the policy in force. Commands and console show it, then apply it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from backends.settings import Settings, SettingsError
from channels.accounts.lane_accounts import lane_accounts
from idempotency.error_mapping import errors
from idempotency.open_counts import CountTooSlow, waiting
from idempotency.sql_ledger import SqlLedger
from message.vocabulary import LANES, Lane
from policy.active import ActivePolicy, in_force
from policy.diff import Change, Effect, Waiting, changes, effects, refusals
from policy.loading import digest, parse
from policy.outcome_checks import missing_settings
from policy.parser import PolicyParser
from policy.problems import Problem
from policy.resets import changed_lanes, dropped_tables, resets
from policy.schema import Policy
from policy.versions import Overtaken, Version, Versions, overtaken


class PolicyPlan(NamedTuple):
    """The effects of applying a policy."""

    now: ActivePolicy
    policy: Policy
    content: str
    changes: Sequence[Change]
    effects: Sequence[Effect]
    refusals: Sequence[str]
    dropped: Sequence[str]
    """Tables that the text in force has and the new one lacks."""
    resets: Sequence[Change]
    """Changes of the lanes that a dropped table applies to."""
    warnings: Sequence[Problem]
    """Valid values that a person should check."""
    counted: bool = True
    """Whether the open deliveries were counted in time; without them no effects are known."""

    @property
    def wanted(self) -> bool:
        """Whether the text differs from the one in force, or none was ever applied."""
        return self.content != self.now.text or self.now.number == 0

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of every changed value and of every changed table, in the order of LANES."""
        values = {change.lane for change in self.changes}
        values |= changed_lanes(self.now.text, self.content)
        return [lane for lane in LANES if lane in values]

    @property
    def drop_sentence(self) -> str:
        """Names the dropped tables and what they reset; empty if nothing is reset."""
        if not self.resets:
            return ""
        does = "is empty" if not self.content.strip() else f"drops {', '.join(self.dropped)}"
        lanes = len({change.lane for change in self.resets})
        return f"the policy {does}, which resets {len(self.resets)} values of {lanes} lanes"


class PolicyRefused(Exception):
    """A plan that must not be applied now; the text has its first reason."""


def plan(
    settings: Settings,
    ledger: SqlLedger,
    name: str,
    content: str,
    expected: int | None = None,
    *,
    count_ms: int | None = None,
) -> PolicyPlan:
    """Returns the effects of a policy's text; problems call the text `name`.

    Open deliveries are counted for `count_ms` at most. Raises PolicyError, SettingsError, LedgerError, and
    Overtaken if not `expected` is in force.
    """
    raw = content.encode()
    policy = parse(name, raw, settings.accounts, version=f"file:{digest(raw)}")
    _check(settings, policy)
    versions = Versions(ledger.database)
    with errors():
        now = in_force(settings, versions)
        if expected is not None and now.number != expected:
            raise Overtaken(overtaken(versions.newest(), expected))
    dropped = dropped_tables(now.text, content)
    found, rows = changes(now.policy, policy), _waiting(ledger, count_ms)
    return PolicyPlan(
        now,
        policy,
        content,
        found,
        effects(now.policy, policy, found, rows or ()),
        refusals(found, rows, ledger.live_lanes()),
        dropped,
        resets(found, dropped),
        _cautions(name, raw),
        counted=rows is not None,
    )


def _waiting(ledger: SqlLedger, count_ms: int | None) -> list[Waiting] | None:
    """Returns the open deliveries; None if they cannot be counted in time."""
    try:
        return waiting(ledger.database, count_ms)
    except CountTooSlow:
        return None


def apply(
    ledger: SqlLedger,
    planned: PolicyPlan,
    author: str,
    *,
    drops: bool = False,
    record: Callable[[Connection, Version], object] | None = None,
) -> Version:
    """Puts the plan's text in force, after the version that it was made against.

    `drops` agrees to dropped tables. `record` writes in the same transaction. Raises PolicyRefused,
    Overtaken, LedgerError.
    """
    if planned.refusals:
        raise PolicyRefused(planned.refusals[0])
    if planned.drop_sentence and not drops:
        raise PolicyRefused(planned.drop_sentence)
    versions, now = Versions(ledger.database), planned.now
    with errors():
        return versions.add(
            planned.content, author, base=now.number, before=now.text, record=record
        )


def _check(settings: Settings, policy: Policy) -> None:
    """Raises SettingsError for accounts or outcomes that the settings lack."""
    for lane in LANES:
        if policy.of(lane).account_names:
            lane_accounts(lane, settings.accounts, policy.of(lane))
    if lacking := missing_settings(settings.outcomes, policy.announced):
        raise SettingsError(lacking)


def _cautions(name: str, content: bytes) -> list[Problem]:
    parser = PolicyParser(name, content, None)
    parser.lanes()
    return sorted(set(parser.cautions))
