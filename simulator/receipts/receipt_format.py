"""A receipt format: one provider's receipts in, the push that carries them out. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from simulator.ledger import LedgerRecord
from simulator.protocols._sms import CHINA_MS
from simulator.receipts.plan import Planned
from simulator.wire import ProtocolContext

FORM: Final = ("Content-Type", "application/x-www-form-urlencoded")
JSON: Final = ("Content-Type", "application/json")
XML: Final = ("Content-Type", "text/xml")


class ReceiptReport(NamedTuple):
    """One receipt on its way."""

    record: LedgerRecord
    planned: Planned
    at_ms: int


class Pushed(NamedTuple):
    """One request."""

    url: str
    fields: Sequence[tuple[str, str]]
    body: bytes


class Format(Protocol):
    """One provider's."""

    steps: bool
    """It reports `sent` too."""
    batch: int
    """Receipts in one push."""

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        """The request that carries them."""


class JsonReports:
    """A JSON list of reports, which is not signed."""

    steps, batch = False, 100

    def __init__(self, worded: Callable[[ReceiptReport, ProtocolContext], dict[str, Any]]) -> None:
        self._worded = worded

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        body = json.dumps([self._worded(one, world) for one in reports])
        return Pushed(url, [JSON], body.encode())


def china_time(at_ms: int) -> str:
    """Returns the time of China's clocks, to the second."""
    return datetime.fromtimestamp((at_ms + CHINA_MS) // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
