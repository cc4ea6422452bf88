"""One test send with everything that went over the wire, for `hongyan accounts test`.

It touches nothing of the fleet: no ledger, no limits, and a token of its own. A provider gives the same
access token to each request before its end, so the workers' token stays good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic, sleep, time
from typing import Final, Literal

import httpx
import msgspec

from channels.accounts.time_limits import Limits
from channels.channel import (
    Account,
    Answer,
    Attempt,
    Call,
    Channel,
    Failure,
    LoginRefused,
    Resolution,
    ResolveResult,
    Token,
    TokenRefused,
    TokenSource,
)
from channels.engine import Engine, Sender
from channels.http_client.failures import BadRequest
from channels.tokens.contract import LoginUnavailable, TokenLife, TokenUnavailable
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome

Purpose = Literal["token", "send", "query"]
_MS: Final = 1_000
_SOONEST_S, _LATEST_S = 1.0, 10.0
"""Pause between two queries, from and to."""
TOKEN_TIMEOUT_S: Final = 10.0
"""For a token, at most: a mail's own limits are minutes."""


class ShownExchange(msgspec.Struct, frozen=True):
    """One request and its answer, unmasked: mask them before anybody sees them."""

    purpose: Purpose
    request: httpx.Request
    answer: Answer
    took_ms: float


class ExchangeRecorder:
    """A sender that records its exchanges. Safe from many threads."""

    def __init__(self, sender: Sender) -> None:
        self.exchanges: list[ShownExchange] = []
        self._sender = sender
        self._now: Purpose = "send"
        self._lock = threading.Lock()

    def send(self, request: httpx.Request) -> Answer:
        """Makes one call on the wire."""
        return self._kept(self._now, request)

    def ask_for_token(self, request: httpx.Request) -> Answer:
        """Makes one call, recorded as a request for a token."""
        return self._kept("token", request)

    def query(self) -> None:
        """Records the calls from now on as queries about an earlier one."""
        self._now = "query"

    def _kept(self, purpose: Purpose, request: httpx.Request) -> Answer:
        began = monotonic()
        answer = self._sender.send(request)
        took_ms = (monotonic() - began) * _MS
        with self._lock:
            self.exchanges.append(ShownExchange(purpose, request, answer, took_ms))
        return answer


class OwnTokens:
    """Tokens of one process with few calls: fetched when first needed, kept until refused."""

    def __init__(self, recorder: ExchangeRecorder, timeout_s: float) -> None:
        self.texts: dict[str, str] = {}
        """By account."""
        self._recorder = recorder
        self._timeout_s = timeout_s

    def get(self, account: Account, source: TokenSource) -> str:
        """Returns the account's token. Raises TokenUnavailable."""
        return self.held(account, source) or self.renew(account, source, "")

    def held(self, account: Account, source: TokenSource) -> str | None:
        """Returns the account's token; None before the first call."""
        return self.texts.get(account.name)

    def renew(self, account: Account, source: TokenSource, stale: str) -> str:
        """Returns a new token. Raises TokenUnavailable."""
        try:
            request = source.request(account, stale)
            token = request if isinstance(request, Token) else self._asked(source, request)
        except LoginRefused as exc:
            raise LoginUnavailable(str(exc), 0.0) from exc
        except (TokenRefused, BadRequest) as exc:
            raise TokenUnavailable(str(exc)) from exc
        self.texts[account.name] = token.text
        return token.text

    def refused_logins(self) -> list[str]:
        """Returns nothing: each call tries anew."""
        return []

    def lives(self) -> dict[str, TokenLife]:
        """Returns nothing: it keeps a token for one trial."""
        return {}

    def _asked(self, source: TokenSource, request: httpx.Request) -> Token:
        request.extensions["timeout"] = {"total": self._timeout_s}
        answer = self._recorder.ask_for_token(request)
        if isinstance(answer, Failure):
            raise TokenUnavailable(f"{answer.code}: {answer.detail}")
        return source.read(answer)


class Trial(msgspec.Struct, frozen=True):
    """The result of a test send."""

    exchanges: Sequence[ShownExchange]
    outcome: AnyOutcome
    tokens: Sequence[str]
    """Access tokens that were used: secrets."""
    resolved: ResolveResult | None = None
    asked: bool = False
    """Whether the provider was asked afterwards. If so, `resolved` None means that it has no query, or that
    the account does not switch it on."""

    denied_s: float = 0.0
    """Seconds after the call for which the query denied an accepted message; 0: it never did."""

    @property
    def unproven(self) -> bool:
        """Whether the query did not show an accepted message, or denied it at first."""
        if self.resolved is None or not isinstance(self.outcome, Accepted):
            return False
        return self.denied_s > 0 or self.resolved.resolution is not Resolution.SENT


def try_out(
    channel: Channel,
    account: Account,
    delivery: Delivery,
    sender: Sender,
    *,
    limits: Limits,
    resolve_s: float | None = None,
    sleep: Callable[[float], None] = sleep,
) -> Trial:
    """Sends one delivery, as a worker would under these limits. With `resolve_s` it queries the result for
    so many seconds, or until that is proven."""
    recorder = ExchangeRecorder(sender)
    tokens = OwnTokens(recorder, min(limits.total, TOKEN_TIMEOUT_S))
    engine = Engine(recorder, tokens)
    called_at = _now_ms()
    call = Call(account, (delivery,), steps=limits.steps)
    (outcome,) = engine.send(channel, call, limits.total)
    trial = Trial(recorder.exchanges, outcome, list(tokens.texts.values()))
    if resolve_s is None:
        return trial
    recorder.query()

    def ask() -> ResolveResult | None:
        queued = isinstance(outcome, Accepted) and outcome.queued
        task = outcome.provider_id if queued and isinstance(outcome, Accepted) else ""
        attempt = Attempt(delivery, called_at=called_at, now=_now_ms(), task=task)
        return engine.resolve(channel, account, attempt, limits.total)

    resolved, denied_s = _asked(ask, isinstance(outcome, Accepted), resolve_s, sleep)
    return msgspec.structs.replace(trial, resolved=resolved, asked=True, denied_s=denied_s)


def _asked(
    ask: Callable[[], ResolveResult | None],
    accepted: bool,
    for_s: float,
    sleep: Callable[[float], None],
) -> tuple[ResolveResult | None, float]:
    """Returns the last answer, and the seconds until the query last denied an accepted message."""
    began, pause_s, denied_s = monotonic(), _SOONEST_S, 0.0
    while True:
        resolved, age_s = ask(), monotonic() - began
        denied = resolved is not None and resolved.resolution is Resolution.NOT_SENT
        if denied and accepted:
            denied_s = max(age_s, 0.001)
        later = resolved is not None and resolved.resolution is Resolution.ASK_LATER
        if (not later and not (denied and accepted)) or age_s >= for_s:
            return resolved, denied_s
        sleep(min(pause_s, for_s - age_s))
        pause_s = min(2 * pause_s, _LATEST_S)


def _now_ms() -> int:
    return int(time() * _MS)
