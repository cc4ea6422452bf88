"""Builds a recall from the configuration; the stack closes its backends."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from backends.settings import Settings
from channels.engine import Engine
from channels.registry import channel_for, usable_accounts
from channels.tokens.shared import open_tokens
from channels.transports import TransportRouter
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.vocabulary import LANES
from policy.active import in_force
from policy.schema import Guarantee, Policy
from policy.versions import Versions
from recovery.recall.recall import WORKER, Providers, Recalling
from sending.receiver_marks import GateMarks, open_marks
from sending.runtime.clock import Clock
from tracing import open_recorder
from tracing.events import Recorder
from tracing.masks import hasher

TIMEOUT_S: Final = 10.0
"""Time limit of one request to a provider."""
_AHEAD_MS: Final = 600_000
"""How far ahead of the clock a notification may be dated."""


class RecallMeans(NamedTuple):
    """Resources of a recall, opened by its caller."""

    ledger: SqlLedger
    policy: Policy
    recorder: Recorder
    marks: GateMarks


class OpenedRecall(NamedTuple):
    """A recall ready to run."""

    recalling: Recalling
    life_ms: int
    """Time after which no covered notification can be sent any more: the longest TTL of any lane."""
    unseen: list[str]
    """Lanes without a ledger, where nothing can be recalled."""


def open_recalling(settings: Settings, stack: ExitStack, wait: Callable[[], bool]) -> OpenedRecall:
    """Opens a recall and its ledger. Raises SettingsError, PolicyError, LedgerError, SqlError."""
    ledger = open_ledger(settings)
    stack.callback(ledger.close)
    policy = in_force(settings, Versions(ledger.database)).policy
    ledger.announced.follow(policy.announced)
    shared = open_marks(settings, ledger.identity(), stack)
    recorder = open_recorder(settings, f"{WORKER}-{socket.gethostname()}-{os.getpid()}")
    stack.callback(recorder.close)
    marks = GateMarks(policy, shared, clock=Clock())
    means = RecallMeans(ledger, policy, recorder, marks)
    return recall_over(settings, means, stack, wait)


def recall_over(
    settings: Settings, means: RecallMeans, stack: ExitStack, wait: Callable[[], bool]
) -> OpenedRecall:
    """Returns a recall over what is open already; `stack` closes the connections to providers that it
    opens."""
    recalling = Recalling(
        means.ledger.recalls(),
        means.ledger.recovering(),
        lambda: _providers(settings, stack),
        means.recorder,
        timeout_s=TIMEOUT_S,
        wait=wait,
        give_back=means.marks.give_back,
        hash_receiver=hasher(settings.outcomes.hash_key),
    )
    policy = means.policy
    unseen = [x.name for x in LANES if policy.of(x).guarantee is Guarantee.BEST_EFFORT]
    longest = max(policy.of(lane).max_ttl_ms for lane in LANES)
    return OpenedRecall(recalling, longest + _AHEAD_MS, unseen)


def _providers(settings: Settings, stack: ExitStack) -> Providers:
    """Opens what takes sent messages back. Raises SettingsError."""
    accounts, faulty = usable_accounts(settings.accounts)
    wires = TransportRouter()
    stack.callback(wires.close)
    tokens = open_tokens(settings, wires)
    stack.callback(tokens.close)
    return Providers(
        Engine(wires, tokens),
        {name: (account, channel_for(account)) for name, account in accounts.items()},
        {name: str(fault) for name, fault in faulty.items()},
    )
