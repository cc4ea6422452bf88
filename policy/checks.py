"""What can be wrong with the values of policy.toml, by themselves and together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import msgspec

from policy.lines import Path
from policy.schema import Guarantee, LanePolicy, Ordering, Weight


def contradictions(policy: LanePolicy) -> Iterator[tuple[str, str]]:
    """Fields that are right by themselves and wrong together: (key to change, what is wrong)."""
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


def misfit(struct: type[msgspec.Struct], key: str, value: object) -> Iterator[tuple[Path, str]]:
    """The value's type or range, where it is not the field's: (where below the key, what is wrong)."""
    try:
        msgspec.convert({key: value}, struct)
    except msgspec.ValidationError as exc:
        yield (), _plain(exc, value)


def wrong_weights(weights: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Told account by account: the table may have a line for each."""
    wrong = False
    for name, weight in weights.items():
        try:
            msgspec.convert(weight, Weight)
        except msgspec.ValidationError as exc:
            wrong = True
            yield (name,), _plain(exc, weight)
    if not wrong and not any(weights.values()):
        yield (), "gives no account a weight above 0, so nothing would choose one"


def did_you_mean(found: object, known: Iterable[str]) -> str:
    """`; did you mean threads?`, or nothing where no known name is close."""
    close = get_close_matches(str(found), sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _plain(exc: msgspec.ValidationError, value: object) -> str:
    """`expected int, got str` out of msgspec's "Expected `int`, got `str` - at `$.threads`"."""
    text = str(exc).partition(" - at ")[0].replace("`", "").replace(" | null", "")
    found = "" if ", got " in text else f", got {value!r}"
    return text[:1].lower() + text[1:] + found
