"""The channel protocol: pure functions per provider, and no I/O.

`request` builds what goes over the wire, `outcomes` reads what came back. One engine does the I/O for
all of them (channels/engine.py), over the transport that the request's scheme and the provider's HTTP
version name.

Where a provider wants a token, the adapter says how one is fetched and how "it has expired" looks
(`tokens`, `token_refused`); keeping tokens is `channels/tokens/contract.py`'s.

What became of an attempt in doubt is told in one of two ways:

    resolve           a dialogue of queries (a generator: yields requests, is sent their answers)
    dedup_window_ms   the provider drops a repeat with the same call key and bytes for so long: then
                      the same request is made again, and `outcomes` reads a repeat as Accepted

What was sent is taken back by another dialogue (`recall`), where the provider has one.
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
    """The name under which its provider counts: accounts of one application share it, and no secret can be
    read from it. Empty: the account's own."""
    reach: Reach = EVERYBODY
    """Whom it reaches; nothing else is sent through it."""
    bucket: str = ""
    """The name under which its rate is kept, where it is the provider's limit: that of all accounts which
    the provider counts as one. Empty: the account's own name, and rate."""

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
    """What the account's token source gave; empty where the provider has none."""
    not_after: float = inf
    """Monotonic; past it no first byte may leave: whoever calls has lost the right to."""
    steps: Mapping[str, float] | None = None
    """Seconds that each step of a dialogue may take (channels/accounts/time_limits.py); None: no step has
    a limit."""
    withdrawn: Callable[[], str] | None = None
    """Says why the call must not be finished any more; empty: it may. A transport whose dialogue may last
    for longer than a lease asks now and then, and right before what it wrote becomes the provider's."""

    def __repr__(self) -> str:
        """Without the token: it would stand in a log."""
        return f"Call({self.account.name}, {len(self.deliveries)} deliveries)"

    @property
    def key(self) -> str:
        """The name under which the provider knows this call: 32 hex digits, the first delivery's key."""
        first = self.deliveries[0]
        return first.call_key or first.key


class Phase(StrEnum):
    """How far a failed call is known to have come."""

    NOT_WRITTEN = "not_written"
    """No byte of the request's body, or not the whole request, can have been acted on: NotSent."""
    WRITTEN = "written"
    """The request may have been acted on: Unknown."""


class Failure(msgspec.Struct, frozen=True):
    """A call without an answer. Judged by what was written, never by an exception's name."""

    phase: Phase
    code: str
    """`connect`, `dns`, `tls`, `timeout`, `reset`, `protocol`, …"""
    detail: str = ""


Answer = httpx.Response | Failure


class Resolution(StrEnum):
    """What a provider's query says of an earlier call."""

    SENT = "sent"
    NOT_SENT = "not_sent"
    ASK_LATER = "ask_later"
    REFUSED = "refused"
    """It was not sent, and the provider will never send it: `ResolveResult.detail` begins with its code."""


class ResolveResult(msgspec.Struct, frozen=True):
    """What a dialogue found out about one delivery."""

    resolution: Resolution
    provider_id: str = ""
    detail: str = ""
    delay_ms: int = 0
    """How long a message that was not sent must be left; 0: it may go at once."""
    final: bool = False
    """Of ASK_LATER: asking again tells no more, so that what is in doubt is the policy's to decide now."""


class Attempt(msgspec.Struct, frozen=True):
    """One delivery in doubt, as the ledger kept it before the call was made."""

    delivery: Delivery
    """With `call_key` and `account` of that attempt."""
    called_at: int
    """When it was claimed for its first call in doubt, epoch milliseconds of the database: not after the
    first byte. Whatever is looked for was made since."""
    now: int
    """The same clock now."""
    token: str = ""
    task: str = ""
    """The provider's name for the task that it took of this attempt (`Accepted.queued`); empty: its answer
    was lost."""
    last_called_at: int = 0
    """As `called_at`, of the latest call in doubt; 0: there was only one."""

    @property
    def last_call(self) -> int:
        """When the latest call began, epoch milliseconds: a provider's lag counts from here."""
        return max(self.called_at, self.last_called_at)

    def __repr__(self) -> str:
        """Without the token, as for Call."""
        return f"Attempt({self.delivery.key})"


Dialogue = Generator[httpx.Request, Answer, ResolveResult]
"""Yields a request, is sent its answer, returns what it found."""


class RecallStatus(StrEnum):
    """What a provider says to a recall."""

    BACK = "back"
    """Its receivers see it no more."""
    REFUSED = "refused"
    """It stays: too old, or not the provider's to take back."""
    ASK_LATER = "ask_later"
    """Nobody knows yet; the same recall may be asked for again."""


class RecallResult(msgspec.Struct, frozen=True):
    """What a recall came to."""

    taken: RecallStatus
    detail: str = ""
    """The provider's code and words, where it did not."""


class SentCall(msgspec.Struct, frozen=True):
    """One call that the provider accepted, as the ledger kept it."""

    provider_id: str
    """The provider's name for it; several deliveries have one where they shared the call."""
    token: str = ""

    def __repr__(self) -> str:
        """Without the token, as for Call."""
        return f"Sent({self.provider_id})"


RecallDialogue = Generator[httpx.Request, Answer, RecallResult]
"""Yields a request, is sent its answer, returns what it came to."""


class Token(msgspec.Struct, frozen=True):
    """An access token as the provider gave it."""

    text: str
    expires_in_s: float

    def __repr__(self) -> str:
        return f"Token(***, {self.expires_in_s:g} s)"


class TokenRefused(Exception):
    """The provider gave no token: the text is its code and reason, without a secret."""


class LoginRefused(TokenRefused):
    """The provider refuses the login itself (id, secret, our address, an application that is switched off):
    asked again it says the same until somebody mended that."""


class TokenSource(Protocol):
    """How one provider gives out tokens. Pure, as all of an adapter."""

    def request(self, account: Account, stale: str) -> httpx.Request | Token:
        """Asks for a token; `stale` is the one the provider just refused, empty ahead of expiry. The token
        itself where the account's own key signs it and nobody is asked; then it raises as `read` does."""
        ...

    def read(self, answer: httpx.Response) -> Token:
        """The token in the answer; raises LoginRefused where the provider refuses the login, and
        TokenRefused where it only gives none now."""
        ...


class OptionalTokens(TokenSource, Protocol):
    """A token source that only some accounts of its provider want."""

    def wanted(self, account: Account) -> bool:
        """Whether this account's calls carry a token."""
        ...


class Channel(Protocol):
    """One provider's adapter. Stateless; safe from many threads."""

    provider: ClassVar[str]
    channel: ClassVar[str]
    max_batch: ClassVar[int]
    """Deliveries one call may carry."""
    options: ClassVar[type[msgspec.Struct]]
    """What an account of this provider may say beside provider and endpoint; fields of type
    `channels.secret.Secret` are never shown."""
    endpoint: ClassVar[str]
    """The provider's own, where an account names none; empty: an account must."""
    schemes: ClassVar[Sequence[str]]
    """Of endpoints; what the transport for the request's scheme must serve."""
    http2: ClassVar[bool]
    """Its sends go over HTTP/2, where the provider speaks nothing older; False: over HTTP/1.1. The engine
    chooses the transport by it."""
    reach: ClassVar[Reach]
    """Whom an account reaches; the option `group` of its account says which group is meant."""
    company: ClassVar[str]
    """Option of an account that says among whose members a receiver is sought; empty: none says."""
    takes_anything: ClassVar[bool]
    """One delivery a call, none of them refused, no dedup: there is nothing to ask before the claim."""
    knows_templates: ClassVar[bool]
    """It has templates of its own, and finds them by id."""
    takes_contents: ClassVar[bool]
    """It sends contents; False: templates of its own alone."""
    dedup_window_ms: ClassVar[int]
    """How long the provider surely drops a repeat of the same call; 0: it does not."""
    account_limits: ClassVar[Sequence[tuple[int, int]]]
    """(messages, seconds) that the provider takes from what it counts as one; what an account's rate is
    made of where it names none. What is too much is refused, and goes later."""
    silencing_limits: ClassVar[Sequence[tuple[int, int]]]
    """(messages, seconds) from what the provider counts as one, where too much silences it for long: exact
    windows are kept over all its accounts, lanes and receivers."""
    counted_by: ClassVar[Sequence[str]]
    """Options of an account by which its provider counts (robot, application, tenant): two accounts in
    which they agree are one to it. Empty: each account is counted alone."""
    receiver_limits: ClassVar[Sequence[tuple[int, int]]]
    """(messages, seconds) to one receiver, where the provider drops in silence what is more."""
    result_window_ms: ClassVar[int]
    """How long after a call that was accepted as a task the provider tells whom it reached; 0: it accepts
    no tasks, its acceptance is the result."""
    recall_window_ms: ClassVar[int]
    """How long after the send the provider takes it back; 0: it never does."""
    tokens: ClassVar[TokenSource | None]
    """Of every account's calls; None: they carry none."""
    optional_tokens: ClassVar[OptionalTokens | None]
    """Of the accounts that want them, where only some do."""
    errors: ClassVar[ErrorTable]
    """Every documented error code and its outcome."""
    promises: ClassVar[Capabilities]
    """What can be relied on; docs/channels.md is made from it."""

    def batch_key(self, delivery: Delivery) -> Hashable:
        """What deliveries of one account must share to join one call. Only asked if max_batch > 1."""
        ...

    def batch_limit(self, delivery: Delivery) -> int:
        """Deliveries that a call of this one's `batch_key` may carry: `max_batch`, or more where the
        provider takes more of the same."""
        ...

    def dedup_window(self, account: Account) -> int:
        """`dedup_window_ms` as far as this account relies on it, in milliseconds."""
        ...

    def fingerprint(self, call: Call) -> str:
        """Where the provider dedups by the body's bytes: their digest, kept in the ledger before the
        call, so that a repeat is only relied on while it would have the same. Empty: not needed."""
        ...

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Why this delivery can never be sent (a receiver that cannot exist, a content without what
        the provider needs), as `code: one sentence`; empty: it can. Asked before it is claimed."""
        ...

    def request(self, call: Call) -> httpx.Request:
        """The request, signed and ready. Same call, same body: nothing random, no time in the body,
        where the provider's dedup looks at it."""
        ...

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """One outcome per delivery, in their order."""
        ...

    def token_refused(self, answer: httpx.Response) -> bool:
        """Whether the answer says that the token was refused, so that nothing was sent."""
        ...

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue | None:
        """The dialogue that tells what became of an attempt; None where the provider has no query."""
        ...

    def recall(self, account: Account, sent: SentCall) -> RecallDialogue | None:
        """The dialogue that takes back everything the provider knows by that id, from every receiver of
        the call; None where it takes nothing back. Asked for twice it does no harm."""
        ...
