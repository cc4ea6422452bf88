"""Builds the publishers of a recovery from its configuration."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from backends.settings import Settings, SettingsError
from channels.engine import Sender
from idempotency.outcomes.lanes import TOPIC, WEBHOOK
from idempotency.sql_ledger import SqlLedger
from message.vocabulary import outcome_topic
from policy.outcome_checks import missing_settings
from policy.schema import Policy
from recovery.outcomes.events import ready_events
from recovery.outcomes.publisher import (
    HeldDuties,
    OutcomePublisher,
    Publication,
    PublisherMetrics,
    PublisherTerms,
)
from recovery.outcomes.topic import OutcomeTopic, topic_producer
from recovery.outcomes.webhook import OutcomeHook

LONGEST_PAUSE_S: Final = {TOPIC: 15.0, WEBHOOK: 120.0}
"""A broker is the fleet's own, a webhook may be anybody's."""


def open_publishers(
    settings: Settings,
    ledger: SqlLedger,
    sender: Sender,
    registry: CollectorRegistry,
    name: str,
) -> list[OutcomePublisher]:
    """Returns a publisher for each target that the settings suffice for; not started. Raises SettingsError
    for a webhook or a secret of the wrong form."""
    outbox, metrics, duties = ledger.outbox(), PublisherMetrics(registry), ledger.duties()
    held = HeldDuties(
        lambda duty, lease_ms: duties.hold(duty, name, lease_ms),
        lambda duty: duties.drop(duty, name),
    )
    hash_key = settings.outcomes.hash_key.encode()
    return [
        OutcomePublisher(
            PublisherTerms(target, LONGEST_PAUSE_S[target], settings.outcomes.keep_days),
            outbox,
            publication,
            ready=partial(ready_events, hash_key=hash_key, open_receiver=outbox.receiver_of),
            duties=held,
            announced=partial(_announces, ledger, target),
            metrics=metrics,
        )
        for target, publication in _publications(settings, sender, name)
    ]


def require_settings(settings: Settings, policy: Policy) -> None:
    """Raises SettingsError if the policy announces lanes and the settings do not suffice."""
    if lacking := missing_settings(settings.outcomes, policy.announced):
        raise SettingsError(lacking)


def _announces(ledger: SqlLedger, target: str) -> bool:
    return bool(ledger.announced.of(target))


def _publications(
    settings: Settings, sender: Sender, name: str
) -> Iterator[tuple[str, Publication]]:
    if missing_settings(settings.outcomes, {"": TOPIC}) is None:
        topic = outcome_topic(settings.kafka.topic_prefix)
        yield TOPIC, OutcomeTopic(topic_producer(settings.kafka, name), topic)
    if missing_settings(settings.outcomes, {"": WEBHOOK}) is None:
        yield WEBHOOK, OutcomeHook(settings.outcomes, sender)
