"""Options of a simulator; the same from flags, from a program and over `/_control`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from simulator.faults import BadFaults, Faults, Rule
from simulator.receipts.plan import ReceiptOptions
from simulator.wire import Lists

DEFAULT_LEDGER: Final = "simulator-ledger.jsonl"

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class SimulatorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a simulator at its start."""

    host: str = "127.0.0.1"
    port: Port = 0
    """0: any free one; it is printed at start."""
    admin_port: Port = 0
    """Always on loopback. Reachable while the provider itself refuses connections."""
    smtp_port: Annotated[int, msgspec.Meta(ge=-1, le=65_535)] = -1
    """Of the mail server (simulator/servers/smtp_server.py). -1: none; 0: any free one."""
    smtp_greeting_ms: Annotated[int, msgspec.Meta(ge=0, le=600_000)] = 0
    """Silence of the mail server after a connection; some servers want it (postscreen), RFC 5321 allows
    5 minutes."""
    smtp_command_ms: Annotated[int, msgspec.Meta(ge=0, le=600_000)] = 0
    """Silence before its answer to MAIL, each RCPT and DATA; RFC 5321 allows 5 minutes."""
    smtp_final_ms: Annotated[int, msgspec.Meta(ge=0, le=1_200_000)] = 0
    """Silence after the dot that ends a message, which is kept before; filters take 5 to 60 s, RFC 5321
    allows 10 minutes. On top of a rule's `latency_ms`."""
    smtp_certificate: str = ""
    """PEM file with key and chain: the mail server wants STARTTLS. Empty: it offers none."""
    certificate: str = ""
    """PEM file with key and chain: the protocols are served over https. Empty: over http."""
    idle_close_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Time after which an idle connection is closed, as servers do. 0: never."""
    close_after: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Answers a connection carries; the last one says `Connection: close`. 0: any number."""
    ledger: str = DEFAULT_LEDGER
    report: str = ""
    """File to write the report to at exit; empty: none."""
    rules: list[Faults] = []
    """The first rule that fits a request decides; none: accepted at once."""
    seed: str = "0"
    dedup: bool = False
    """Honour the Idempotency-Key: accept each once. Off, so that doubles are seen."""
    fsync: bool = True
    """Off: written before the answer, but not synced. Survives kill -9 of the simulator, not of the
    machine; for benchmarks."""
    credentials: dict[str, dict[str, str]] = {}
    """Per protocol, the credentials of accounts (simulator/wire.py)."""
    behaviours: dict[str, dict[str, str]] = {}
    """Per protocol, departures from the provider's own default (docs/simulator.md lists them)."""
    token_ttl_s: Annotated[float, msgspec.Meta(gt=0)] = 7_200.0
    """Life of the access tokens that the simulator gives out."""
    lists: Lists = Lists()
    """Contents and lag of the providers' own queries."""
    receipts: dict[str, ReceiptOptions] = {}
    """Per protocol, the callback for receipts of accepted messages, and its faults."""
    json: bool = False
    """Print the address as JSON."""


class Control(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Settings to change at run time; a field that is left out stays as it is."""

    rules: list[Faults] | msgspec.UnsetType = msgspec.UNSET
    dedup: bool | msgspec.UnsetType = msgspec.UNSET
    refuse_new: bool | msgspec.UnsetType = msgspec.UNSET
    """Refuse new connections; open ones are served on."""
    lists: Lists | msgspec.UnsetType = msgspec.UNSET
    expire_tokens: bool | msgspec.UnsetType = msgspec.UNSET
    """True: every access token given out so far has expired when the change is answered."""


class Started(msgspec.Struct):
    """The start line, for programs."""

    url: str
    admin: str
    ledger: str
    pid: int
    smtp: str = ""
    """The mail server's address; empty: there is none."""


class Rules:
    """Faults made ready, kept beside their source. Raises BadFaults with the rule's place."""

    def __init__(self, faults: list[Faults]) -> None:
        self.faults = faults
        self.ready = [_rule(place, one) for place, one in enumerate(faults)]


def _rule(place: int, faults: Faults) -> Rule:
    try:
        return Rule(faults)
    except BadFaults as exc:
        raise BadFaults(f"rules[{place}]: {exc}") from exc
