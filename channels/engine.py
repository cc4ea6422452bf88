"""Runs one provider call: the adapter builds the request, a transport sends it, the adapter reads.

A fault inside an adapter is an outcome, never an exception:

    before the write   nothing was sent and a retry would fail the same: Rejected `adapter_error`
    after it           the provider may have acted: Unknown `adapter_error`

A refused token is renewed, and the call is made once more: the refusal proves that nothing was sent. The
caller is asked before the call is made if there was a wait for a token (`Call.withdrawn`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple, Protocol, TypeVar

import httpx
import msgspec
import structlog

from backends.logs import where
from channels.channel import (
    Account,
    Answer,
    Attempt,
    Call,
    Channel,
    Dialogue,
    Failure,
    Phase,
    RecallDialogue,
    RecallResult,
    RecallStatus,
    Resolution,
    ResolveResult,
    SentCall,
    TokenSource,
)
from channels.endpoints import over_http2
from channels.http_client.failures import BadRequest, withdrawn
from channels.judging.outcomes import for_all, of_failure, shown_outcomes
from channels.providers.null import NullChannel
from channels.tokens.contract import LoginUnavailable, NoTokens, Tokens, TokenUnavailable
from message.delivery import Delivery
from message.foreign_text import shown
from message.outcomes import AnyOutcome, Limit, NotSent, Rejected, Unknown
from message.structs import describe_structs

log = structlog.get_logger(__name__)

MAX_QUESTIONS = 100
"""Queries in one dialogue, at most: an adapter that asks more is broken."""


Asked = dict[tuple[str, str, bytes], Answer]
"""Answers by question (method, URL, body), so that none is asked twice."""
T = TypeVar("T")
D = TypeVar("D", ResolveResult, RecallResult)
Talk = Generator[httpx.Request, Answer, T]
Begin = Callable[[str], "Talk[T] | None"]
"""Starts a dialogue with a token; None where the provider has none."""


class _Unanswered(Exception):
    """A dialogue without a result for now; the text says why."""


class _TokenRefused(_Unanswered):
    """The provider wants another token."""


class Sender(Protocol):
    """A transport as the engine needs it; raises BadRequest alone."""

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        """Makes one call on the wire."""


class AsyncSender(Sender, Protocol):
    """A transport that need not wait for the answer."""

    def begin(
        self, request: httpx.Request, done: Callable[[httpx.Response | Failure], None]
    ) -> httpx.Response | Failure | None:
        """As `send`. Returns None if another thread calls `done`, which must not wait."""


class TokenRejected(NamedTuple):
    """A call that `NonBlockingEngine.begin` got needs another token. Nothing was sent."""

    call: Call
    """With the token that the provider refused; empty if none was at hand."""


class Engine:
    """Stateless beside its transport; safe from many threads."""

    def __init__(
        self, transport: Sender, tokens: Tokens | None = None, *, keep_answers: bool = False
    ) -> None:
        """Must run before any thread uses it, and after the import of the adapters. `keep_answers`:
        outcomes other than Accepted keep the provider's answer, masked."""
        describe_structs()
        self._keep_answers = keep_answers
        self._transport = transport
        self._tokens = tokens or NoTokens()

    def send(self, channel: Channel, call: Call, timeout_s: float) -> list[AnyOutcome]:
        """Returns one outcome per delivery, in their order. Never raises. `timeout_s` bounds each request:
        one, or two with a token."""
        if isinstance(channel, NullChannel):
            return channel.accept(call)
        found = self._with_token(channel, call)
        if not isinstance(found, Call):
            return found
        outcomes = self._send(channel, found, timeout_s)
        if outcomes is not None:
            return outcomes
        renewed = self.with_new_token(channel, found)
        if not isinstance(renewed, Call):
            return renewed
        return _withdrawn(renewed) or self.send_renewed(channel, renewed, timeout_s)

    def with_new_token(self, channel: Channel, call: Call) -> Call | list[AnyOutcome]:
        """Returns a call whose token was refused with another token; outcomes if none is to be had. May
        wait."""
        source = _source(channel, call.account)
        assert source is not None
        try:
            return _with(call, self._tokens.renew(call.account, source, call.token))
        except TokenUnavailable as exc:
            return _no_token(call, exc)

    def send_renewed(self, channel: Channel, call: Call, timeout_s: float) -> list[AnyOutcome]:
        """Makes the call that `with_new_token` returned; returns as `send`."""
        outcomes = self._send(channel, call, timeout_s)
        return (
            for_all(call, NotSent("token_refused", account=True)) if outcomes is None else outcomes
        )

    def resolve(
        self,
        channel: Channel,
        account: Account,
        attempt: Attempt,
        timeout_s: float,
        asked: Asked | None = None,
    ) -> ResolveResult | None:
        """Holds the adapter's dialogue about an attempt in doubt; None where it has none. Never raises: a
        failure is ASK_LATER. Questions in `asked` are answered from it; new answers are added to it."""

        def begin(token: str) -> Dialogue | None:
            return channel.resolve(account, msgspec.structs.replace(attempt, token=token))

        try:
            found = self._ask(channel, account, begin, timeout_s, asked)
            return None if found is None else _shown_detail(found, attempt.delivery)
        except _Unanswered as exc:
            return ResolveResult(Resolution.ASK_LATER, detail=shown(str(exc)))
        except Exception as exc:
            return ResolveResult(
                Resolution.ASK_LATER, detail=adapter_failed(channel, "resolve", exc)
            )

    def recall(
        self, channel: Channel, account: Account, sent: SentCall, timeout_s: float
    ) -> RecallResult | None:
        """Holds the adapter's dialogue that takes a call back; None where it has none. Never raises."""

        def begin(token: str) -> RecallDialogue | None:
            return channel.recall(account, msgspec.structs.replace(sent, token=token))

        try:
            found = self._ask(channel, account, begin, timeout_s)
            return None if found is None else _shown_detail(found)
        except _Unanswered as exc:
            return RecallResult(RecallStatus.ASK_LATER, shown(str(exc)))
        except Exception as exc:
            return RecallResult(RecallStatus.ASK_LATER, adapter_failed(channel, "recall", exc))

    def _with_token(self, channel: Channel, call: Call) -> Call | list[AnyOutcome]:
        """Returns the call with its token, if it needs one; outcomes if no token is to be had, or if the
        call was withdrawn meanwhile."""
        source = _source(channel, call.account)
        if source is None:
            return call
        try:
            token = self._tokens.get(call.account, source)
        except TokenUnavailable as exc:
            return _no_token(call, exc)
        return _withdrawn(call) or _with(call, token)

    def _send(self, channel: Channel, call: Call, timeout_s: float) -> list[AnyOutcome] | None:
        """Returns the outcomes; None: the token was refused."""
        answer = self._asked(channel, call, timeout_s, self._transport.send)
        return answer if isinstance(answer, list) else self._read(channel, call, answer)

    def _read(
        self, channel: Channel, call: Call, answer: httpx.Response | Failure
    ) -> list[AnyOutcome] | None:
        """Returns the outcomes by the answer; None: the token was refused."""
        try:
            if not isinstance(answer, Failure) and channel.token_refused(answer):
                return None
            outcomes = _one_each(call, channel.outcomes(call, answer))
            return shown_outcomes(call, outcomes, _content(answer) if self._keep_answers else b"")
        except Exception as exc:
            detail = adapter_failed(channel, "outcomes", exc)
            if isinstance(answer, Failure):
                return for_all(call, of_failure(answer))
            return for_all(call, Unknown("adapter_error", detail))

    def _asked(
        self, channel: Channel, call: Call, timeout_s: float, ask: Callable[[httpx.Request], T]
    ) -> T | list[AnyOutcome]:
        """Returns the result of `ask`, or the outcomes of a call that could not be made."""
        try:
            request = channel.request(call)
            extensions = request.extensions
            extensions["timeout"] = {"total": timeout_s}
            extensions["not_after"] = call.not_after
            if channel.http2:
                request.url = over_http2(request.url)
            if call.steps is not None:
                extensions["timeout"] |= call.steps
                extensions["withdrawn"] = call.withdrawn
        except Exception as exc:
            return for_all(call, _not_made(channel, exc))
        try:
            return ask(request)
        except BadRequest as exc:
            return for_all(call, _not_made(channel, exc))
        except Exception as exc:
            return for_all(
                call, Unknown("transport_error", adapter_failed(channel, "transport", exc))
            )

    def _ask(
        self,
        channel: Channel,
        account: Account,
        begin: Begin[T],
        timeout_s: float,
        asked: Asked | None = None,
    ) -> T | None:
        """Returns a dialogue's result; None where there is none. Raises _Unanswered, and the adapter's own
        errors."""
        source = _source(channel, account)
        if source is None:
            return self._converse(channel, begin(""), timeout_s, asked)
        try:
            token = self._tokens.get(account, source)
            try:
                return self._converse(channel, begin(token), timeout_s, asked)
            except _TokenRefused:
                token = self._tokens.renew(account, source, token)
                return self._converse(channel, begin(token), timeout_s, asked)
        except TokenUnavailable as exc:
            raise _Unanswered(str(exc)) from exc

    def _converse(
        self,
        channel: Channel,
        dialogue: Talk[T] | None,
        timeout_s: float,
        asked: Asked | None = None,
    ) -> T | None:
        if dialogue is None:
            return None
        try:
            request = next(dialogue)
            for _ in range(MAX_QUESTIONS):
                answer = self._known(request, timeout_s, asked)
                if isinstance(answer, httpx.Response) and channel.token_refused(answer):
                    raise _TokenRefused("the token was refused")
                request = dialogue.send(answer)
        except StopIteration as end:
            found: T = end.value
            return found
        finally:
            dialogue.close()
        raise _Unanswered(f"more than {MAX_QUESTIONS} queries")

    def _known(self, request: httpx.Request, timeout_s: float, asked: Asked | None) -> Answer:
        if asked is None:
            return self._answer(request, timeout_s)
        question = (request.method, str(request.url), request.read())
        if question not in asked:
            asked[question] = self._answer(request, timeout_s)
        return asked[question]

    def _answer(self, request: httpx.Request, timeout_s: float) -> Answer:
        request.extensions["timeout"] = {"total": timeout_s}
        try:
            return self._transport.send(request)
        except BadRequest as exc:
            return Failure(Phase.NOT_WRITTEN, "adapter_error", str(exc))


class NonBlockingEngine(Engine):
    """The engine of a lane, whose thread need not wait for answers."""

    def __init__(
        self, transport: AsyncSender, tokens: Tokens | None = None, *, keep_answers: bool = False
    ) -> None:
        super().__init__(transport, tokens, keep_answers=keep_answers)
        self._beginner = transport

    def begin(
        self,
        channel: Channel,
        call: Call,
        timeout_s: float,
        done: Callable[[list[AnyOutcome] | TokenRejected], None],
    ) -> list[AnyOutcome] | None:
        """As `send`, without waiting for the answer where the transport can. Then it returns None, and the
        thread that reads answers calls `done`, which must not wait. A known result is returned at once.

        Never waits for a token: `done` gets a TokenRejected, maybe before this returns None. The caller
        then calls `with_new_token` and `send_renewed`, in a thread that may wait.
        """
        if isinstance(channel, NullChannel):
            return channel.accept(call)
        source = _source(channel, call.account)
        if source is not None:
            token = self._tokens.held(call.account, source)
            if token is None:
                done(TokenRejected(call))
                return None
            call = _with(call, token)

        def finish(answer: httpx.Response | Failure) -> None:
            outcomes = self._read(channel, call, answer)
            done(TokenRejected(call) if outcomes is None else outcomes)

        answer = self._asked(
            channel, call, timeout_s, lambda request: self._beginner.begin(request, finish)
        )
        if answer is None or isinstance(answer, list):
            return answer
        outcomes = self._read(channel, call, answer)
        if outcomes is None:
            done(TokenRejected(call))
        return outcomes


def _source(channel: Channel, account: Account) -> TokenSource | None:
    """Returns the source of the account's tokens; None where its provider, or this account, needs none."""
    if channel.tokens is not None:
        return channel.tokens
    some = channel.optional_tokens
    return some if some is not None and some.wanted(account) else None


def _content(answer: httpx.Response | Failure) -> bytes:
    """Returns the bytes of the answer; none without one."""
    return b"" if isinstance(answer, Failure) else answer.content


def _no_token(call: Call, cause: TokenUnavailable) -> list[AnyOutcome]:
    reason = shown(str(cause))
    if isinstance(cause, LoginUnavailable):
        wait_ms = int(cause.left_s * 1_000)
        return for_all(call, NotSent("login_refused", reason, wait_ms, True, Limit.LOGIN))
    return for_all(call, NotSent("token_unavailable", reason))


def _withdrawn(call: Call) -> list[AnyOutcome] | None:
    """Returns the outcomes of a call that its caller takes back; None if it may be made."""
    why = "" if call.withdrawn is None else call.withdrawn()
    return for_all(call, of_failure(withdrawn(why))) if why else None


def _with(call: Call, token: str) -> Call:
    return msgspec.structs.replace(call, token=token)


def _not_made(channel: Channel, cause: Exception) -> Rejected:
    """Returns the outcome of a call whose request the adapter could not make."""
    detail = adapter_failed(channel, "request", cause)
    return Rejected("adapter_error", detail, before_call=True)


def _one_each(call: Call, outcomes: list[AnyOutcome]) -> list[AnyOutcome]:
    if len(outcomes) != len(call.deliveries):
        raise ValueError(f"{len(outcomes)} outcomes for {len(call.deliveries)} deliveries")
    return outcomes


def _shown_detail(found: D, delivery: Delivery | None = None) -> D:
    """Returns the result with its detail as it may be shown."""
    if not found.detail:
        return found
    detail = shown(found.detail, delivery.private_texts() if delivery is not None else ())
    return msgspec.structs.replace(found, detail=detail)


def adapter_failed(channel: Channel, step: str, exc: Exception) -> str:
    """Logs where an adapter failed, for a programmer, and returns one sentence about it. The exception's
    own text is in neither: it may hold parts of the message."""
    cause = type(exc).__name__
    log.error("adapter_failed", provider=channel.provider, step=step, cause=cause, where=where(exc))
    return f"the {channel.provider} adapter failed in {step}: {cause}"
