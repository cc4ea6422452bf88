"""Checks the values of policy.toml, by themselves and together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec

from backends.durations import number_hint
from backends.toml_text import did_you_mean
from message.vocabulary import Lane
from policy.gates import DAY_MINUTES, QuietAction, QuietHours, minutes_of
from policy.schema import (
    Guarantee,
    InDoubt,
    LanePolicy,
    Ordering,
    OutcomeTarget,
    SmtpPolicy,
    Weight,
    WhenLost,
)
from policy.toml_document import Place

_DAY_MS = 86_400_000
GATES = ("quiet_hours", "frequency", "dedup")
"""Tables that some kinds are exempt from."""
_NEVER: Final = "mail to a slower server never gets out"
_OF_PROTOCOL: Final = {
    "greeting_ms": (300_000, "§4.5.3.2.1", _NEVER),
    "command_ms": (300_000, "§4.5.3.2.2", _NEVER),
    "data_ms": (180_000, "§4.5.3.2.4, §4.5.3.2.5", _NEVER),
    "final_ms": (
        600_000,
        "§4.5.3.2.6",
        "what a slower server takes is in doubt, and may be sent again",
    ),
}
"""The protocol's own limits: milliseconds, section of RFC 5321, and the effect of a shorter one."""


def contradictions(policy: LanePolicy) -> Iterator[tuple[str, str]]:
    """Yields fields that are right by themselves and wrong together: (key to change, problem)."""
    p = policy
    if p.ttl_ms > p.max_ttl_ms:
        yield "ttl_ms", f"{p.ttl_ms} is above max_ttl_ms {p.max_ttl_ms}; lower it, or raise that"
    if p.timeout_ms >= p.ttl_ms:
        yield (
            "timeout_ms",
            f"{p.timeout_ms} is not below ttl_ms {p.ttl_ms}: no call could end in time",
        )
    if p.max_in_flight < p.threads:
        yield (
            "max_in_flight",
            f"{p.max_in_flight} is below threads {p.threads}, some of which would never work",
        )
    if p.ordering is Ordering.KEY and p.guarantee is Guarantee.BEST_EFFORT:
        yield "ordering", 'by key needs the ledger, which guarantee "best_effort" does without'
    if p.retry.base_ms > p.retry.cap_ms:
        yield (
            "retry.base_ms",
            f"{p.retry.base_ms} is above cap_ms {p.retry.cap_ms}; lower it, or raise that",
        )
    if p.breaker.open_ms > p.breaker.max_open_ms:
        yield (
            "breaker.open_ms",
            f"{p.breaker.open_ms} is above max_open_ms {p.breaker.max_open_ms}; lower it, or raise that",
        )
    if p.smtp.total_ms <= p.smtp.final_ms:
        yield (
            "smtp.total_ms",
            f"{p.smtp.total_ms} is not above smtp.final_ms {p.smtp.final_ms}: nothing could be sent",
        )
    yield from _unfit(p)


def cautions(lane: Lane, policy: LanePolicy) -> Iterator[tuple[str, str]]:
    """Yields valid fields that a person should check: (key, why). Limits of SMTP below the protocol's own
    make copies, or keep mail from a slow server."""
    if lane.channel != "email":
        return
    usual = SmtpPolicy()
    for key, (least_ms, section, what) in _OF_PROTOCOL.items():
        if (given := getattr(policy.smtp, key)) < least_ms:
            yield f"smtp.{key}", f"{given} is below RFC 5321's {least_ms} ({section}): {what}"
    if policy.smtp.total_ms - policy.smtp.final_ms < usual.greeting_ms:
        text = (
            f"{policy.smtp.total_ms} leaves less than {usual.greeting_ms} before the dot: {_NEVER}"
        )
        yield "smtp.total_ms", text


def _unfit(p: LanePolicy) -> Iterator[tuple[str, str]]:
    """Yields fields that do not fit the guarantee or other times."""
    if p.unknown is InDoubt.RESEND and p.guarantee is Guarantee.AT_MOST_ONCE:
        yield "unknown", 'cannot be "resend" where guarantee is "at_most_once"; park it'
    if p.lost is WhenLost.RESEND and p.guarantee is Guarantee.BEST_EFFORT:
        yield "lost", '"resend" needs the ledger, which guarantee "best_effort" does without'
    if p.retention_days * _DAY_MS < p.receipt_lag_ms:
        yield (
            "receipt_lag_ms",
            f"{p.receipt_lag_ms} is above retention_days {p.retention_days}: the row would be gone by then",
        )
    if p.retention_days * _DAY_MS < p.max_ttl_ms:
        yield (
            "retention_days",
            f"{p.retention_days} days are less than max_ttl_ms {p.max_ttl_ms}; raise it, or lower that",
        )
    if (
        p.quiet_hours.holds
        and p.quiet_hours.action is QuietAction.HOLD
        and p.guarantee is Guarantee.BEST_EFFORT
    ):
        yield (
            "quiet_hours.action",
            '"hold" needs the ledger, which guarantee "best_effort" does without; say "drop"',
        )
    if p.outcomes is not OutcomeTarget.NONE and p.guarantee is Guarantee.BEST_EFFORT:
        yield "outcomes", 'need the ledger, which guarantee "best_effort" does without; say "none"'
    if all_day(p.quiet_hours):
        yield "quiet_hours.windows", "leave no time of the day open"


def all_day(quiet: QuietHours) -> bool:
    """Whether the windows cover the whole day."""
    minutes: set[int] = set()
    for window in quiet.windows:
        begin, end = minutes_of(window)
        minutes |= set(range(begin, end if end > begin else DAY_MINUTES))
        minutes |= set(range(end)) if end <= begin else set()
    return len(minutes) == DAY_MINUTES


def wrong_time(key: str, value: Any) -> Iterator[tuple[Place, str]]:
    """Yields the problems of a zone or windows of the right type."""
    if key == "zone":
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            hint = did_you_mean(value, available_timezones())
            yield (), f"there is no time zone {value!r}{hint}"
    elif key == "windows":
        for window in value:
            try:
                minutes_of(window)
            except ValueError as exc:
                yield (), f"{exc}; write HH:MM-HH:MM"


def misfit(struct: type[msgspec.Struct], key: str, value: object) -> Iterator[tuple[Place, str]]:
    """Yields a problem of the value's type or range: (place below the key, text)."""
    try:
        msgspec.convert({key: value}, struct)
    except msgspec.ValidationError as exc:
        yield (), _plain(exc, value) + _within(exc) + number_hint(key, value)


def wrong_weights(weights: dict[str, Any]) -> Iterator[tuple[Place, str]]:
    """Yields the problems of each account, since the table may have a line for each."""
    wrong = False
    for name, weight in weights.items():
        try:
            msgspec.convert(weight, Weight)
        except msgspec.ValidationError as exc:
            wrong = True
            yield (name,), _plain(exc, weight)
    if not wrong and not any(weights.values()):
        yield (), "gives no account a weight above 0, so nothing would choose one"


def _within(exc: msgspec.ValidationError) -> str:
    """Returns the place below the key, for a table in a list."""
    where = str(exc).partition(" - at `$.")[2].rstrip("`")
    return f" (at {where})" if "." in where else ""


def _plain(exc: msgspec.ValidationError, value: object) -> str:
    """Returns `expected int, got str` for msgspec's "Expected `int`, got `str` - at `$.threads`"."""
    text = str(exc).partition(" - at ")[0].replace("`", "").replace(" | null", "")
    found = "" if ", got " in text else f", got {value!r}"
    return text[:1].lower() + text[1:] + found
