"""How a simulator is to run; the same from flags, from a program and over `/_control`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from simulator.faults import BadFaults, Faults, Rule
from simulator.receipts.plan import ReceiptOptions
from simulator.wire import Lists

DEFAULT_LEDGER: Final = "simulator-ledger.jsonl"

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class SimulatorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a simulator is started with."""

    host: str = "127.0.0.1"
    port: Port = 0
    """0: any free one; it is printed at start."""
    admin_port: Port = 0
    """Always on loopback. Reachable while the provider itself refuses connections."""
    smtp_port: Annotated[int, msgspec.Meta(ge=-1, le=65_535)] = -1
    """Of the mail server (simulator/servers/smtp_server.py). -1: none; 0: any free one, printed at
    start."""
    smtp_greeting_ms: Annotated[int, msgspec.Meta(ge=0, le=600_000)] = 0
    """How long the mail server says nothing after a connection; some do by purpose (postscreen), RFC 5321
    allows 5 minutes."""
    smtp_command_ms: Annotated[int, msgspec.Meta(ge=0, le=600_000)] = 0
    """How long before it answers MAIL, each RCPT and DATA; RFC 5321 allows 5 minutes."""
    smtp_final_ms: Annotated[int, msgspec.Meta(ge=0, le=1_200_000)] = 0
    """How long it thinks after the dot that ends a message, which is kept before; filters take 5 to 60 s,
    RFC 5321 allows 10 minutes. On top of a rule's `latency_ms`."""
    smtp_certificate: str = ""
    """PEM file with key and chain: the mail server wants STARTTLS. Empty: it offers none."""
    certificate: str = ""
    """PEM file with key and chain: the protocols are served over https. Empty: over http."""
    idle_close_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Close a connection that has been idle for so long, as servers do. 0: never."""
    close_after: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Answers a connection carries; the last one says `Connection: close`. 0: any number."""
    ledger: str = DEFAULT_LEDGER
    report: str = ""
    """File to write the report to at exit; empty: none."""
    rules: list[Faults] = []
    """The first that fits a request decides; none: accepted at once."""
    seed: str = "0"
    dedup: bool = False
    """Honour the Idempotency-Key: accept each once. Off, so that doubles are seen."""
    fsync: bool = True
    """Off: written before the answer, but not synced. Survives kill -9 of the simulator, not of the
    machine; for benchmarks."""
    credentials: dict[str, dict[str, str]] = {}
    """Per protocol, what accounts sign with (simulator/wire.py)."""
    behaviours: dict[str, dict[str, str]] = {}
    """Per protocol, where it departs from the provider's own default (docs/simulator.md lists them)."""
    token_ttl_s: Annotated[float, msgspec.Meta(gt=0)] = 7_200.0
    """How long the access tokens live that the simulator gives out."""
    lists: Lists = Lists()
    """What the providers' own queries show, and when."""
    receipts: dict[str, ReceiptOptions] = {}
    """Per protocol, where receipts of what it accepted are pushed, and how badly."""
    json: bool = False
    """Say the address as JSON."""


class Control(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What can be changed at run time; in a change, what is left out stays as it is."""

    rules: list[Faults] | msgspec.UnsetType = msgspec.UNSET
    dedup: bool | msgspec.UnsetType = msgspec.UNSET
    refuse_new: bool | msgspec.UnsetType = msgspec.UNSET
    """Refuse new connections; those that stand are served on."""
    lists: Lists | msgspec.UnsetType = msgspec.UNSET
    expire_tokens: bool | msgspec.UnsetType = msgspec.UNSET
    """True: every access token given out so far has expired when the change is answered."""


class Rules:
    """Faults made ready, kept beside what they were made from; raises BadFaults with the rule's place."""

    def __init__(self, faults: list[Faults]) -> None:
        self.faults = faults
        self.ready = [_rule(place, one) for place, one in enumerate(faults)]


def _rule(place: int, faults: Faults) -> Rule:
    try:
        return Rule(faults)
    except BadFaults as exc:
        raise BadFaults(f"rules[{place}]: {exc}") from exc
