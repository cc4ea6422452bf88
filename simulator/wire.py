"""What a wire protocol of the simulator is: it reads requests, the provider decides, it words answers.

    request ──read──▶ Reply       refused: bad signature, expired token, malformed; nothing is kept
                      Question    a query, a token, a recall: answered by the protocol, faults apply
                      Send        one call for one or more receivers
    Send ── fate of the call, code of each receiver, dedup ──▶ Verdicts ── kept on disk ── reply ──▶

The whole call meets one fate (latency, reset, an error for all); then every receiver of an accepted call
may meet an error of its own. `known` tells whether the protocol's own dedup window has it already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Protocol

import msgspec

from simulator.ledger import Record
from simulator.servers.http_request import Request

ID: str = "simulator-id"
SECRET: str = "simulator-secret"  # noqa: S105 (what tests and demos sign with)


class Lists(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the providers' own queries show of what was accepted. The defaults are the least that each
    provider documents; a test or a demo that counts on more says so."""

    lag_ms: Annotated[int, msgspec.Meta(ge=0)] = 1_000
    """How long after its acceptance a message is not listed yet. Aliyun counts it at once all the same."""
    contexts: bool = False
    """Tencent returns the SessionContext: by default it does not (SDK model, PullSmsSendStatus)."""
    texts: bool = False
    """Twilio shows the texts: an account may redact them."""
    numbers: bool = True
    """Twilio shows the numbers and finds messages by them: False, the account redacts them."""
    status_query: bool = False
    """The webhook protocol answers its status query: by default GET meets a router that knows no path."""


ECHOING: Final = Lists(lag_ms=0, contexts=True, texts=True, status_query=True)
"""A provider that shows all it can, at once."""


class ProtocolContext(msgspec.Struct, kw_only=True):
    """What protocols may know of the simulator; the same object for all of them."""

    credentials: Mapping[str, Mapping[str, str]] = {}
    """Per protocol, what an account signs with; missing ones are `simulator-id`, `simulator-secret`."""
    now_ms: Callable[[], int]
    """Epoch milliseconds."""
    behaviours: Mapping[str, Mapping[str, str]] = {}
    """Per protocol, where it departs from the provider's own default."""
    token_ttl_s: float = 7_200.0
    """How long access tokens live."""
    lists: Lists = Lists()
    token_generation: int = 0
    """Tokens given out under an earlier one have expired, whatever their age: `expire_tokens`."""
    counts: dict[str, int] = {}
    """What a protocol counts (tokens given out, …); shown in the report."""
    callbacks: dict[str, str] = {}
    """By the provider's name for a message, where its sender wants its receipts."""

    def credential(self, protocol: str, name: str, default: str = SECRET) -> str:
        """One of a protocol's credentials."""
        return self.credentials.get(protocol, {}).get(name, default)

    def behaviour(self, protocol: str, name: str, default: str = "") -> str:
        """How a protocol behaves in one respect; `default` is the provider's own."""
        return self.behaviours.get(protocol, {}).get(name, default)

    def listed(self, at_ms: int) -> bool:
        """Whether what was accepted at that time is in the lists by now."""
        return at_ms + self.lists.lag_ms <= self.now_ms()

    def count(self, name: str) -> None:
        """One more of something."""
        self.counts[name] = self.counts.get(name, 0) + 1


class Reply(msgspec.Struct):
    """An answer as it goes over the wire; JSON unless `fields` name another Content-Type."""

    body: bytes
    status: int = 200
    fields: Sequence[tuple[str, str]] = ()


class Recipient(msgspec.Struct, frozen=True):
    """One receiver of one call."""

    receiver: str
    key: str = ""
    """What the provider dedups by, or else what tells this delivery from others: in the ledger it is
    the record's key. Empty: `<protocol>:<call id>:<receiver>`."""


class Send(msgspec.Struct):
    """A call that was read and found in order."""

    recipients: Sequence[Recipient]
    id: str = ""
    """The sender's own name for the call, as far as the wire carries one."""
    echo: Any = None
    """Whatever `reply` wants to see again."""


class Question(msgspec.Struct):
    """A request that sends nothing."""

    method: str
    """`GET`, `TOKEN` or `RECALL`: what fault rules select it by."""
    answer: Callable[[], Reply]
    """Called when everything accepted so far is on disk."""
    receiver: str = ""
    key: str = ""


class Verdict(msgspec.Struct):
    """What became of one recipient."""

    recipient: Recipient
    provider_id: str
    """The simulator's name for what it accepted; of the first one where this is a repeat."""
    code: str = ""
    """The receiver's error; empty: accepted."""
    repeated: bool = False
    """The dedup window knew it: not accepted again."""


class WireProtocol(Protocol):
    """One provider. Everything runs on the simulator's event loop; state belongs to that thread."""

    name: str

    def read(self, request: Request, path: str) -> Send | Question | Reply:
        """Check the request as the provider does; `path` is what follows `/<protocol>`, from its slash
        (`/` where there is nothing). Signatures cover the path as it came (`request.target`)."""
        ...

    def provider_id(self, seq: int) -> str:
        """The provider's name for the `seq`-th thing it saw, in its own format."""
        ...

    def known(self, send: Send, recipient: Recipient) -> str | None:
        """The provider id of the one accepted before, if the provider would drop this as its repeat."""
        ...

    def accepted(self, record: Record) -> None:
        """A recipient's acceptance, as it is kept: for queries, dedup and receipts. Called again for every
        record of this protocol when the simulator starts on an earlier ledger."""
        ...

    def reply(self, send: Send, verdicts: Sequence[Verdict]) -> Reply:
        """The answer to an accepted call, errors of single receivers in it."""
        ...

    def refuse(self, code: str) -> Reply:
        """The answer for an error of the whole call (of a Send or a Question) by the provider's code."""
        ...


class BaseProtocol:
    """For providers without dedup."""

    name: str = ""

    def __init__(self, world: ProtocolContext) -> None:
        self.world = world

    def provider_id(self, seq: int) -> str:
        """Anything unique will do."""
        return f"sim-{seq}"

    def known(self, send: Send, recipient: Recipient) -> str | None:
        """Nothing is dropped."""
        return None

    def accepted(self, record: Record) -> None:
        """Nothing is remembered."""
