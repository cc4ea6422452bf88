"""The receipts that follow an acceptance, and their times: pure functions of the seed and the record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from simulator.faults import BadFaults, Latency, Rate, luck

SENT: Final = "sent"
DELIVERED: Final = "delivered"
UNDELIVERED: Final = "undelivered"


class ReceiptOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One protocol's receipts, and their faults. Rates are shares of the accepted messages."""

    url: str
    """The callback's address, query and all."""
    delay_ms: str = "0"
    """From the acceptance, written as `latency_ms` is. Shorter than the call's own latency: the receipt
    comes before the answer."""
    undelivered: dict[str, Rate] = {}
    """The provider's codes of undelivered messages, to rate; the others arrive."""
    never: Rate = 0.0
    doubled: Rate = 0.0
    """Pushed again, after as long again."""
    reordered: Rate = 0.0
    """Share whose last step comes first, at providers that report steps."""
    contradicted: Rate = 0.0
    """Followed by the opposite, after as long again."""
    attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 4
    """Tries of a push that is not answered 2xx."""
    retry_ms: Annotated[float, msgspec.Meta(ge=0, le=3_600_000)] = 500.0
    """Pause before the next try."""


class Planned(NamedTuple):
    """One receipt to be pushed."""

    delay_ms: float
    status: str
    """`sent`, `delivered` or `undelivered`."""
    code: str = ""
    """The provider's code of an undelivered message."""


class Plan:
    """The receipts of one protocol. Raises BadFaults for options that cannot be played."""

    def __init__(self, name: str, options: ReceiptOptions, seed: str) -> None:
        self.options = options
        self._seed = f"{seed}\0receipt\0{name}"
        self._delay = _checked(name, options)

    def of(self, key: str, *, steps: bool) -> list[Planned]:
        """Returns the receipts of the acceptance named `key`; with `steps`, `sent` precedes the last."""
        options = self.options
        if self._draw(key, "never") < options.never:
            return []
        delay_ms = self._delay.at(luck(f"{self._seed}\0{key}\0delay")[0])
        last = self._last(key, delay_ms)
        planned = [last]
        if steps:
            reordered = self._draw(key, "reordered") < options.reordered
            planned.append(Planned(delay_ms * (1.5 if reordered else 0.5), SENT))
        if self._draw(key, "doubled") < options.doubled:
            planned.append(last._replace(delay_ms=2 * delay_ms))
        if self._draw(key, "contradicted") < options.contradicted:
            planned.append(_opposite(last)._replace(delay_ms=2 * delay_ms))
        return sorted(planned, key=lambda one: one.delay_ms)

    def _last(self, key: str, delay_ms: float) -> Planned:
        drawn, bound = self._draw(key, "undelivered"), 0.0
        for code, rate in self.options.undelivered.items():
            bound += rate
            if drawn < bound:
                return Planned(delay_ms, UNDELIVERED, code)
        return Planned(delay_ms, DELIVERED)

    def _draw(self, key: str, what: str) -> float:
        return luck(f"{self._seed}\0{key}\0{what}")[0]


def check(receipts: Mapping[str, ReceiptOptions], known: Mapping[str, Any]) -> None:
    """Raises BadFaults for a protocol that reports nothing, and for options that cannot be played."""
    for name, options in receipts.items():
        if name not in known:
            raise BadFaults(f"receipts.{name}: receipts are pushed by {', '.join(sorted(known))}")
        _checked(name, options)


def _checked(name: str, options: ReceiptOptions) -> Latency:
    url = urlsplit(options.url)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise BadFaults(f"receipts.{name}.url: {options.url!r} is no http:// or https:// URL")
    if sum(options.undelivered.values()) > 1 + 1e-9:
        raise BadFaults(f"receipts.{name}.undelivered: the rates add up to more than 1")
    try:
        return Latency(options.delay_ms)
    except BadFaults as exc:
        raise BadFaults(f"receipts.{name}: {exc}".replace("latency_ms", "delay_ms")) from exc


def _opposite(planned: Planned) -> Planned:
    if planned.status == DELIVERED:
        return planned._replace(status=UNDELIVERED, code="simulated")
    return planned._replace(status=DELIVERED, code="")
