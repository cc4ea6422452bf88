"""Defaults that most adapters share: a provider without batch, token and query."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from time import time
from typing import ClassVar

import httpx
import msgspec

from channels.accounts.reach import PERSONS, Reach
from channels.channel import (
    Account,
    Attempt,
    Call,
    Dialogue,
    OptionalTokens,
    RecallDialogue,
    SentCall,
    TokenSource,
)
from channels.endpoints import HTTP
from channels.judging.error_table import ErrorTable
from message.delivery import Delivery


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a provider whose accounts have none."""


class BaseChannel:
    """An adapter overrides what its provider has; see `channels.channel.Channel`."""

    max_batch: ClassVar[int] = 1
    options: ClassVar[type[msgspec.Struct]] = NoOptions
    endpoint: ClassVar[str] = ""
    schemes: ClassVar[Sequence[str]] = HTTP
    http2: ClassVar[bool] = False
    reach: ClassVar[Reach] = PERSONS
    company: ClassVar[str] = ""
    takes_anything: ClassVar[bool] = False
    knows_templates: ClassVar[bool] = False
    takes_contents: ClassVar[bool] = True
    dedup_window_ms: ClassVar[int] = 0
    account_limits: ClassVar[Sequence[tuple[int, int]]] = ()
    silencing_limits: ClassVar[Sequence[tuple[int, int]]] = ()
    counted_by: ClassVar[Sequence[str]] = ()
    receiver_limits: ClassVar[Sequence[tuple[int, int]]] = ()
    result_window_ms: ClassVar[int] = 0
    recall_window_ms: ClassVar[int] = 0
    tokens: ClassVar[TokenSource | None] = None
    optional_tokens: ClassVar[OptionalTokens | None] = None
    errors: ClassVar[ErrorTable] = ErrorTable(())

    def batch_key(self, delivery: Delivery) -> Hashable:
        """Returns a key of its own for each delivery: no two join one call."""
        return delivery.key

    def batch_limit(self, delivery: Delivery) -> int:
        """Returns `max_batch`."""
        return self.max_batch

    def dedup_window(self, account: Account) -> int:
        """Returns the provider's window: every account relies on it."""
        return self.dedup_window_ms

    def fingerprint(self, call: Call) -> str:
        """Returns an empty text: no dedup looks at the body."""
        return ""

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Returns an empty text: any delivery may be tried."""
        return ""

    def token_refused(self, answer: httpx.Response) -> bool:
        """Returns False: there is no token."""
        return False

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue | None:
        """Returns None: the provider has no query."""
        return None

    def recall(self, account: Account, sent: SentCall) -> RecallDialogue | None:
        """Returns None: the provider takes nothing back."""
        return None


class ClockedChannel(BaseChannel):
    """An adapter that reads a clock, in epoch seconds."""

    def __init__(self, now: Callable[[], float] = time) -> None:
        self._now = now
