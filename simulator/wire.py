"""A wire protocol of the simulator: it reads requests, the provider decides, it words answers.

    request ──read──▶ Reply         refused: bad signature, expired token, malformed; nothing is kept
                      Question      a query, a token, a recall: answered by the protocol, faults apply
                      ReceivedCall  one call for one or more receivers
    ReceivedCall ── fate of the call, code of each receiver, dedup ──▶ Verdicts ── kept on disk ── reply ──▶

The whole call meets one fate (latency, reset, an error for all). Then every receiver of an accepted call
may meet an error of its own. `known` finds a repeat within the protocol's own dedup window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from simulator.ledger import LedgerRecord
from simulator.servers.http_request import Request

ID: str = "simulator-id"
SECRET: str = "simulator-secret"  # noqa: S105 (of tests and demos)


class Lists(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of the providers' own queries about accepted messages. The defaults are the least that each
    provider documents; a test or a demo sets more if it needs more."""

    lag_ms: Annotated[int, msgspec.Meta(ge=0)] = 1_000
    """Time after acceptance in which a message is not listed. Aliyun counts it at once all the same."""
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
    """The simulator as protocols see it; the same object for all of them."""

    credentials: Mapping[str, Mapping[str, str]] = {}
    """Per protocol, an account's credentials; missing ones are `simulator-id`, `simulator-secret`."""
    now_ms: Callable[[], int]
    """Epoch milliseconds."""
    behaviours: Mapping[str, Mapping[str, str]] = {}
    """Per protocol, departures from the provider's own default."""
    token_ttl_s: float = 7_200.0
    """Life of an access token."""
    lists: Lists = Lists()
    token_generation: int = 0
    """Tokens of an earlier generation have expired, whatever their age: `expire_tokens`."""
    counts: dict[str, int] = {}
    """Counts of a protocol (tokens given out, …); shown in the report."""
    callbacks: dict[str, str] = {}
    """Addresses for receipts that senders named, by the provider's name for the message."""

    def credential(self, protocol: str, name: str, default: str = SECRET) -> str:
        """Returns one of a protocol's credentials."""
        return self.credentials.get(protocol, {}).get(name, default)

    def behaviour(self, protocol: str, name: str, default: str = "") -> str:
        """Returns a protocol's behaviour in one respect; `default` is the provider's own."""
        return self.behaviours.get(protocol, {}).get(name, default)

    def listed(self, at_ms: int) -> bool:
        """Returns whether a message that was accepted at that time is in the lists by now."""
        return at_ms + self.lists.lag_ms <= self.now_ms()

    def count(self, name: str) -> None:
        """Counts one more of this name."""
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
    """The key by which the provider dedups, or one that identifies this delivery: in the ledger it is the
    record's key. Empty: `<protocol>:<call id>:<receiver>`."""


class ReceivedCall(msgspec.Struct):
    """A call that was read and found in order."""

    recipients: Sequence[Recipient]
    id: str = ""
    """The sender's own name for the call, as far as the wire carries one."""
    echo: Any = None
    """Data that `reply` needs again."""


class Question(msgspec.Struct):
    """A request that sends nothing."""

    method: str
    """`GET`, `TOKEN` or `RECALL`: fault rules select by it."""
    answer: Callable[[], Reply]
    """Called when everything accepted so far is on disk."""
    receiver: str = ""
    key: str = ""


class Verdict(msgspec.Struct):
    """The result for one recipient."""

    recipient: Recipient
    provider_id: str
    """The provider's name for the message; for a repeat that of the first."""
    code: str = ""
    """The receiver's error; empty: accepted."""
    repeated: bool = False
    """A repeat within the dedup window: not accepted again."""


class WireProtocol:
    """One provider, by default without dedup. It belongs to the thread of the simulator's event loop."""

    name: str = ""

    def __init__(self, world: ProtocolContext) -> None:
        self.world = world

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Checks the request as the provider does. `path` is the part after `/<protocol>`, from its slash
        (`/` if there is none). Signatures cover the path as it came (`request.target`)."""
        raise NotImplementedError

    def provider_id(self, seq: int) -> str:
        """Returns the provider's name for the `seq`-th message it saw, in its own format."""
        return f"sim-{seq}"

    def known(self, send: ReceivedCall, recipient: Recipient) -> str | None:
        """Returns the earlier message's id if the provider would drop this as its repeat; else None."""
        return None

    def repeat_id(self, earlier: str, seq: int) -> str:
        """Returns the name under which the provider answers a repeat: that of the earlier message. `seq` as
        for `provider_id`."""
        return earlier

    def accepted(self, record: LedgerRecord) -> None:
        """Remembers a recipient's acceptance, for queries, dedup and receipts. Called again for every
        record of this protocol when the simulator starts on an earlier ledger."""

    def reply(self, send: ReceivedCall, verdicts: Sequence[Verdict]) -> Reply:
        """Returns the answer to an accepted call, errors of single receivers in it."""
        raise NotImplementedError

    def refuse(self, code: str) -> Reply:
        """Returns the answer to a call or a question that fails as a whole, with the provider's code."""
        raise NotImplementedError


class OneReceiver(WireProtocol):
    """A provider whose calls have one receiver each."""

    def reply(self, send: ReceivedCall, verdicts: Sequence[Verdict]) -> Reply:
        """Returns the refusal of the one receiver, else the answer of `taken`."""
        (verdict,) = verdicts
        return self.refuse(verdict.code) if verdict.code else self.taken(send, verdict)

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns the answer to an accepted call."""
        raise NotImplementedError
