"""Faults, their rates and selectors: pure functions of the seed, the key and the request's turn.

The n-th request for one key has the same fate in every run with the same seed. Requests of other keys do
not change it.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple

import msgspec

Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Z99: Final = 2.326347874
"""The 99th percentile of a standard normal distribution."""
_SPREAD = re.compile(r"(?P<low>[0-9.]+)-(?P<high>[0-9.]+)")
_LOGNORMAL = re.compile(r"p50=(?P<p50>[0-9.]+),p99=(?P<p99>[0-9.]+)")
_MAX_MS: Final = 3_600_000.0


class BadFaults(ValueError):
    """Faults that cannot be played; the text names the key and the reason."""


class ConnectionEnd(StrEnum):
    """The end of a request: an ordinary answer, or a fault in its place."""

    ANSWER = "answer"
    RESET = "reset"
    """Accepted, then the connection is reset."""
    CLOSE = "close"
    """Accepted, then the connection is closed."""
    HANG = "hang"
    """Accepted, never answered."""
    DRIP = "drip"
    """Accepted, answered a byte at a time."""
    DROP = "drop"
    """Read, not accepted, closed."""


class Faults(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One rule. The first whose selectors fit decides; rates are shares of the requests that fit."""

    path: str = ""
    """Prefix of the request's path; the path of its endpoint identifies an account."""
    receiver: str = ""
    """Prefix of the receiver; queries have none and fit only an empty one."""
    method: str = "POST"
    """The request's purpose, whatever HTTP says: `POST` a send, `GET` a query, `TOKEN`, `RECALL`."""
    latency_ms: str = "0"
    """`10`, `5-20` (even), or `p50=10,p99=80` (lognormal)."""
    errors: dict[str, Rate] = {}
    """Status to rate."""
    retry_after: str = ""
    """Header of error answers; empty: none."""
    codes: dict[str, Rate] = {}
    """The provider's own error codes, for the whole call, to rate. Not for the webhook protocol."""
    receiver_codes: dict[str, Rate] = {}
    """The same for single receivers of a call: partial batches."""
    limit: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Requests taken in any `limit_s`; further ones are refused, with `retry_after`. 0: all."""
    limit_s: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    limit_code: str = ""
    """The provider's own code for a refusal by the limit; empty: status 429."""
    accept_errors: bool = False
    """Accept requests that are answered with an error."""
    reset: Rate = 0.0
    close: Rate = 0.0
    hang: Rate = 0.0
    drip: Rate = 0.0
    drop: Rate = 0.0
    drip_ms: Annotated[float, msgspec.Meta(gt=0)] = 100.0


class FaultDecision(NamedTuple):
    """The fate of one request."""

    ending: ConnectionEnd = ConnectionEnd.ANSWER
    status: int = 200
    delay_ms: float = 0.0
    accepted: bool = True
    retry_after: str = ""
    drip_ms: float = 0.0
    code: str = ""
    """The provider's error for the whole call; empty: none."""


class Rule:
    """Faults, checked and made ready to draw from."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self._latency = Latency(faults.latency_ms)
        self._fates = _fates(faults)
        self._taken: deque[float] = deque()
        """Times of the requests taken in the last `limit_s`, oldest first."""
        certain = self._latency.constant and not self._fates
        self.certain = FaultDecision(delay_ms=self._latency.at(0.0)) if certain else None
        """The only possible fate; None: it is drawn."""

    def fits(self, method: str, path: str, receiver: str) -> bool:
        """Returns whether this rule decides about the request."""
        faults = self.faults
        return (
            method == faults.method
            and path.startswith(faults.path)
            and receiver.startswith(faults.receiver)
        )

    def over(self, now: float) -> FaultDecision | None:
        """Returns the refusal of one more request at `now`, in seconds; None if it is within the limit,
        which then counts it."""
        faults, taken = self.faults, self._taken
        if not faults.limit:
            return None
        while taken and taken[0] <= now - faults.limit_s:
            taken.popleft()
        if len(taken) < faults.limit:
            taken.append(now)
            return None
        if faults.limit_code:
            return FaultDecision(
                accepted=False, code=faults.limit_code, retry_after=faults.retry_after
            )
        return FaultDecision(accepted=False, status=429, retry_after=faults.retry_after)

    def draw(self, luck: float, pace: float) -> FaultDecision:
        """Returns the fate for two numbers in [0, 1)."""
        delay_ms = self._latency.at(pace)
        for bound, fate in self._fates:
            if luck < bound:
                return fate._replace(delay_ms=delay_ms)
        return FaultDecision(delay_ms=delay_ms)

    def draw_code(self, luck: float) -> str:
        """Returns the error for one receiver of an accepted call; empty: none."""
        bound = 0.0
        for code, rate in self.faults.receiver_codes.items():
            bound += rate
            if luck < bound:
                return code
        return ""


class Latency:
    """A distribution of delays in milliseconds. Raises BadFaults for a text that is none."""

    def __init__(self, text: str) -> None:
        self._low = self._width = self._sigma = 0.0
        if match := _LOGNORMAL.fullmatch(text.replace(" ", "")):
            self._low, p99 = _number(match["p50"]), _number(match["p99"])
            if not 0 < self._low <= p99:
                raise BadFaults(f"latency_ms: {text!r}: p50 must be above 0 and p99 not below it")
            self._sigma = math.log(p99 / self._low) / _Z99
        elif match := _SPREAD.fullmatch(text):
            self._low, high = _number(match["low"]), _number(match["high"])
            if high < self._low:
                raise BadFaults(f"latency_ms: {text!r}: the second number must not be the smaller")
            self._width = high - self._low
        else:
            self._low = _number(text)

    @property
    def constant(self) -> bool:
        """Whether every delay is the same."""
        return not self._width and not self._sigma

    def at(self, quantile: float) -> float:
        """Returns the delay at a quantile in [0, 1)."""
        if self._sigma:
            return min(self._low * math.exp(self._sigma * _normal(quantile)), _MAX_MS)
        return self._low + self._width * quantile


def decide(
    rules: Sequence[Rule], seed: str, method: str, path: str, receiver: str, key: str, turn: int
) -> FaultDecision:
    """Returns the fate of the `turn`-th request for `key`."""
    for rule in rules:
        if rule.fits(method, path, receiver):
            return rule.certain or rule.draw(*luck(f"{seed}\0{method}\0{key}\0{turn}"))
    return FaultDecision()


def receiver_code(rules: Sequence[Rule], seed: str, path: str, receiver: str, turn: int) -> str:
    """Returns the error of one receiver in an accepted call; empty: none."""
    for rule in rules:
        if rule.fits("POST", path, receiver):
            return rule.draw_code(luck(f"{seed}\0receiver\0{receiver}\0{turn}")[0])
    return ""


def luck(text: str) -> tuple[float, float]:
    """Returns two numbers in [0, 1), the same for the same text."""
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return (number >> 32) / 2**32, (number & 0xFFFFFFFF) / 2**32


def _fates(faults: Faults) -> list[tuple[float, FaultDecision]]:
    """Returns upper bounds of luck, each with its fate."""
    shares = [
        (faults.reset, FaultDecision(ConnectionEnd.RESET)),
        (faults.close, FaultDecision(ConnectionEnd.CLOSE)),
        (faults.hang, FaultDecision(ConnectionEnd.HANG)),
        (faults.drip, FaultDecision(ConnectionEnd.DRIP, drip_ms=faults.drip_ms)),
        (faults.drop, FaultDecision(ConnectionEnd.DROP, accepted=False)),
        *(_error(faults, status, rate) for status, rate in faults.errors.items()),
        *(
            (
                rate,
                FaultDecision(
                    code=code, accepted=faults.accept_errors, retry_after=faults.retry_after
                ),
            )
            for code, rate in faults.codes.items()
        ),
    ]
    bound, fates = 0.0, []
    for rate, fate in shares:
        bound += rate
        if rate:
            fates.append((bound, fate))
    if sum(faults.receiver_codes.values()) > 1 + 1e-9:
        raise BadFaults("receiver_codes: the rates add up to more than 1")
    if bound > 1 + 1e-9:
        raise BadFaults(f"the rates add up to {bound:.3f}; together they must not pass 1")
    return fates


def _error(faults: Faults, status: str, rate: float) -> tuple[float, FaultDecision]:
    if not (status.isascii() and status.isdigit() and 200 <= int(status) <= 599):
        raise BadFaults(f"errors: {status!r} is no status from 200 to 599")
    accepted = faults.accept_errors or status.startswith("2")
    fate = FaultDecision(status=int(status), accepted=accepted, retry_after=faults.retry_after)
    return rate, fate


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MAX_MS:
        raise BadFaults(f"latency_ms: {text!r} is none of 10, 5-20 and p50=10,p99=80")
    return value


def _normal(quantile: float) -> float:
    """Returns the inverse of the standard normal distribution, by Winitzki's erf⁻¹, good to 0.5 %."""
    x = 2 * min(max(quantile, 1e-6), 1 - 1e-6) - 1
    a = 0.147
    log = math.log(1 - x * x)
    half = 2 / (math.pi * a) + log / 2
    root = math.sqrt(math.sqrt(half * half - log / a) - half)
    return math.copysign(root, x) * math.sqrt(2)
