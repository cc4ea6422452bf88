"""The channel protocol: pure functions per provider, and no I/O.

`request` builds the request, `outcomes` reads the answer. channels/engine.py does the I/O of all adapters.
The request's scheme and the provider's HTTP version choose the transport.

An adapter with tokens makes the request for one and recognises a refused one (`tokens`, `token_refused`);
channels/tokens/contract.py keeps them.

An attempt in doubt is settled in one of two ways:

    resolve           a dialogue of queries (a generator: yields requests, is sent their answers)
    dedup_window_ms   the provider drops a repeat with the same call key and bytes for so long: then
                      the same request is made again, and `outcomes` reads a repeat as Accepted

Another dialogue (`recall`) takes a sent call back, where the provider can.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from enum import StrEnum
from math import inf
from typing import Any, ClassVar, Protocol

import httpx
import msgspec

from channels.accounts.reach import EVERYBODY, Reach
from channels.capabilities import Capabilities
from channels.judging.error_table import ErrorTable
from message.delivery import Delivery
from message.outcomes import AnyOutcome


class Account(msgspec.Struct, frozen=True):
    """One configured login at one provider; `options` is a struct of the adapter's `options` type."""

    name: str
    provider: str
    endpoint: str
    options: Any = None
    ca_file: str = ""
    """A PEM file of authorities to trust beside the public ones."""
    rate_per_s: float | None = None
    """Deliveries per second that the whole fleet may send through it; None: no limit of ours."""
    burst: int | None = None
    """Deliveries that may go at once after a pause; None: one second's worth."""
    counted_as: str = ""
    """The name under which its provider counts, without a secret. Accounts of one application share it.
    Empty: the account's own name."""
    reach: Reach = EVERYBODY
    """Receivers that the account reaches; nothing else is sent through it."""
    bucket: str = ""
    """The name under which its rate is kept, if the rate is the provider's limit: accounts that the
    provider counts as one share it. Empty: the rate is the account's own."""

    @property
    def counted(self) -> str:
        """The name under which its provider counts."""
        return self.counted_as or self.name


class Call(msgspec.Struct, frozen=True):
    """One provider call for one or more deliveries of one lane and account.

    All deliveries of a call carry the same `call_key`; it is in the ledger before the call is made.
    """

    account: Account
    deliveries: Sequence[Delivery]
    token: str = ""
    """The account's access token; empty where the provider has none."""
    not_after: float = inf
    """Monotonic. No first byte may leave later: the caller's lease is over by then."""
    steps: Mapping[str, float] | None = None
    """Limits of a dialogue's steps, in seconds (channels/accounts/time_limits.py); None: no limits."""
    withdrawn: Callable[[], str] | None = None
    """Returns why the call must not be finished; empty: it may. `Engine.send` asks once it has a token. A
    transport whose dialogue may outlast a lease asks at intervals, and right before the message becomes the
    provider's."""

    def __repr__(self) -> str:
        """Leaves the token out: a log may show this."""
        return f"Call({self.account.name}, {len(self.deliveries)} deliveries)"

    @property
    def key(self) -> str:
        """The name under which the provider knows this call: 32 hex digits, the first delivery's key."""
        first = self.deliveries[0]
        return first.call_key or first.key


class Phase(StrEnum):
    """The known progress of a failed call."""

    NOT_WRITTEN = "not_written"
    """The provider cannot have acted on the request: NotSent."""
    WRITTEN = "written"
    """The request may have been acted on: Unknown."""


class Failure(msgspec.Struct, frozen=True):
    """A call without an answer, judged by the bytes written, never by an exception's name."""

    phase: Phase
    code: str
    """`connect`, `dns`, `tls`, `timeout`, `reset`, `protocol`, …"""
    detail: str = ""


Answer = httpx.Response | Failure


class Resolution(StrEnum):
    """A query's finding about an earlier call."""

    SENT = "sent"
    NOT_SENT = "not_sent"
    ASK_LATER = "ask_later"
    REFUSED = "refused"
    """Not sent, and the provider will never send it: `ResolveResult.detail` begins with its code."""


class ResolveResult(msgspec.Struct, frozen=True):
    """A dialogue's finding about one delivery."""

    resolution: Resolution
    provider_id: str = ""
    """With SENT: the provider's name for the message that arrived, by which it may be recalled; empty: the
    name is not known."""
    detail: str = ""
    delay_ms: int = 0
    """Delay before an unsent message may go again; 0: it may go at once."""
    final: bool = False
    """Only with ASK_LATER: further queries would tell no more, and the policy decides now."""


class Attempt(msgspec.Struct, frozen=True):
    """One delivery in doubt, as the ledger kept it before the call was made."""

    delivery: Delivery
    """With `call_key` and `account` of that attempt."""
    called_at: int
    """Time of the claim for its first call in doubt, epoch milliseconds of the database: before any
    byte."""
    now: int
    """The present, on the same clock."""
    token: str = ""
    task: str = ""
    """The provider's name for the task it made of this attempt (`Accepted.queued`); empty: its answer was
    lost."""
    last_called_at: int = 0
    """As `called_at`, of the latest call in doubt; 0: there was only one."""

    @property
    def last_call(self) -> int:
        """The start of the latest call, epoch milliseconds: a provider's lag counts from here."""
        return max(self.called_at, self.last_called_at)

    def __repr__(self) -> str:
        """Leaves the token out, as Call does."""
        return f"Attempt({self.delivery.key})"


Dialogue = Generator[httpx.Request, Answer, ResolveResult]
"""Yields a request, is sent its answer, returns its finding."""


class RecallStatus(StrEnum):
    """A provider's answer to a recall."""

    BACK = "back"
    """The receivers see the message no more."""
    REFUSED = "refused"
    """The message stays: too old, or not the provider's to take back."""
    ASK_LATER = "ask_later"
    """Undecided; the same recall may be asked for again."""


class RecallResult(msgspec.Struct, frozen=True):
    """The result of a recall."""

    taken: RecallStatus
    detail: str = ""
    """The provider's code and words, unless the message was taken back."""


class SentCall(msgspec.Struct, frozen=True):
    """One call that the provider accepted, as the ledger kept it."""

    provider_id: str
    """The provider's name for the call; its deliveries share the name."""
    token: str = ""

    def __repr__(self) -> str:
        """Leaves the token out, as Call does."""
        return f"Sent({self.provider_id})"


RecallDialogue = Generator[httpx.Request, Answer, RecallResult]
"""Yields a request, is sent its answer, returns the result."""


class Token(msgspec.Struct, frozen=True):
    """An access token as the provider gave it."""

    text: str
    expires_in_s: float

    def __repr__(self) -> str:
        return f"Token(***, {self.expires_in_s:g} s)"


class TokenRefused(Exception):
    """The provider gave no token. The text is its code and reason, without a secret."""


class LoginRefused(TokenRefused):
    """The provider refuses the login itself: id, secret, our address, or an application that is switched
    off. It refuses again until a person has mended that."""


class TokenSource(Protocol):
    """A provider's way of giving tokens. Pure, like all of an adapter."""

    def request(self, account: Account, stale: str) -> httpx.Request | Token:
        """Returns the request for a token, or a token that the account's own key signed (and then raises as
        `read` does). `stale` is the token that was just refused; empty ahead of expiry."""

    def read(self, answer: httpx.Response) -> Token:
        """Returns the token in the answer. Raises LoginRefused for a refused login, TokenRefused where the
        provider only gives none now."""


class OptionalTokens(TokenSource, Protocol):
    """A token source that only some accounts of its provider use."""

    def wanted(self, account: Account) -> bool:
        """Returns whether this account's calls carry a token."""


class Channel(Protocol):
    """One provider's adapter. Stateless; safe from many threads."""

    provider: ClassVar[str]
    channel: ClassVar[str]
    max_batch: ClassVar[int]
    """Deliveries one call may carry."""
    options: ClassVar[type[msgspec.Struct]]
    """The type of an account's settings beside provider and endpoint. Fields of type
    `channels.secret.Secret` are never shown."""
    endpoint: ClassVar[str]
    """The provider's own endpoint, for accounts that name none; empty: an account must name one."""
    schemes: ClassVar[Sequence[str]]
    """Schemes of endpoints; the transport for the request's scheme must serve them."""
    http2: ClassVar[bool]
    """Whether sends go over HTTP/2, for a provider that speaks nothing older. The engine chooses the
    transport by it."""
    reach: ClassVar[Reach]
    """Receivers that an account reaches; the option `group` of its account names the group."""
    company: ClassVar[str]
    """Option of an account that names the company whose members it reaches; empty: there is none."""
    takes_anything: ClassVar[bool]
    """One delivery a call, none of them refused, no dedup: nothing is checked before the claim."""
    knows_templates: ClassVar[bool]
    """The provider has templates of its own, found by id."""
    takes_contents: ClassVar[bool]
    """The provider sends contents; False: only its own templates."""
    dedup_window_ms: ClassVar[int]
    """Time within which the provider surely drops a repeat of the same call; 0: it drops none."""
    account_limits: ClassVar[Sequence[tuple[int, int]]]
    """(messages, seconds) that the provider accepts from an account as it counts them. An account without a
    rate gets its rate from here. The provider refuses more, which then goes later."""
    silencing_limits: ClassVar[Sequence[tuple[int, int]]]
    """(messages, seconds) from an account as the provider counts them, above which it silences that account
    for long. Exact windows are kept over all its accounts, lanes and receivers."""
    counted_by: ClassVar[Sequence[str]]
    """Options of an account by which its provider counts (robot, application, tenant). Accounts that agree
    in them are one to it. Empty: each account is counted alone."""
    receiver_limits: ClassVar[Sequence[tuple[int, int]]]
    """(messages, seconds) to one receiver, above which the provider drops in silence."""
    result_window_ms: ClassVar[int]
    """Time after an accepted task in which the provider tells the receivers it reached; 0: there are no
    tasks, acceptance is the result."""
    recall_window_ms: ClassVar[int]
    """Time after the send in which the provider takes a message back; 0: it never does."""
    tokens: ClassVar[TokenSource | None]
    """Source of the tokens for every call; None: calls carry none."""
    optional_tokens: ClassVar[OptionalTokens | None]
    """Source for the accounts that want tokens, where only some do."""
    errors: ClassVar[ErrorTable]
    """Every documented error code and its outcome."""
    promises: ClassVar[Capabilities]
    """Capabilities to be relied on; docs/channels.md is made from them."""

    def batch_key(self, delivery: Delivery) -> Hashable:
        """Returns the key that deliveries share to join one call. Only asked if max_batch > 1."""

    def batch_limit(self, delivery: Delivery) -> int:
        """Returns how many deliveries a call of this one's `batch_key` may carry: `max_batch`, or more
        where the provider takes more of the same."""

    def dedup_window(self, account: Account) -> int:
        """Returns `dedup_window_ms` as far as this account relies on it, in milliseconds."""

    def fingerprint(self, call: Call) -> str:
        """Returns the digest of the body's bytes where the provider dedups by them; empty: not needed. The
        ledger keeps it before the call: only a repeat with the same digest is relied on."""

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Returns why this delivery can never be sent, as `code: one sentence`; empty: it can. Causes are
        an impossible receiver and a content without what the provider needs. Asked before the claim."""

    def request(self, call: Call) -> httpx.Request:
        """Returns the signed request. Same call, same body, without time or chance, where the provider's
        dedup looks at it."""

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns one outcome per delivery, in their order."""

    def token_refused(self, answer: httpx.Response) -> bool:
        """Returns whether the answer refuses the token, so that nothing was sent."""

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue | None:
        """Returns the dialogue that settles an attempt; None where the provider has no query."""

    def recall(self, account: Account, sent: SentCall) -> RecallDialogue | None:
        """Returns the dialogue that takes the call of that id back from all its receivers; None where the
        provider takes nothing back. A second run does no harm."""
