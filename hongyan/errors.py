"""Maps expected errors to a sentence and an exit code; any other error is a bug."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from hongyan.terminal import PROBLEMS, USAGE


class WrongUsage(Exception):
    """Flags that do not go together; one sentence says what to write."""


class NotDone(Exception):
    """An order that was not, or only partly, carried out; the text says what to do."""


def judged(exc: BaseException) -> tuple[str, int] | None:
    """Returns the sentence and the exit code; None for an unexpected error. An error of several problems
    gives a line for each.

    Looks only at classes of loaded modules: any other cannot have been raised.
    """
    for module, name, code, sentence in _EXPECTED:
        known = getattr(sys.modules.get(module), name, None)
        if known is not None and isinstance(exc, known):
            return sentence.format(_all(exc)), code
    return None


def _all(exc: BaseException) -> str:
    """Returns each problem on a line of its own, the first ones of very many."""
    problems: Iterable[object] = getattr(exc, "texts", ()) or getattr(exc, "problems", ())
    texts = [*map(str, problems)]
    if len(texts) < 2:
        return str(exc)
    more = [f"and {len(texts) - _MOST} more problems"] if len(texts) > _MOST else []
    return "\n".join((*texts[:_MOST], *more))


_MOST = 40
"""Problems that are shown at once."""


_EXPECTED = (
    ("hongyan.errors", "WrongUsage", USAGE, "{}"),
    ("hongyan.errors", "NotDone", PROBLEMS, "{}"),
    ("recovery.resend.errors", "SelectionRefused", USAGE, "{}"),
    ("recovery.resend.errors", "ResendNotDone", PROBLEMS, "{}"),
    ("recovery.resend_jobs.errors", "ResendJobRefused", PROBLEMS, "{}"),
    ("producer.campaigns.contract", "CampaignRefused", PROBLEMS, "{}"),
    ("producer.campaigns.crowd_file", "CrowdUnusable", PROBLEMS, "{}"),
    ("backends.settings", "SettingsError", USAGE, "{}"),
    ("policy.loading", "PolicyError", USAGE, "{}"),
    ("policy.versions", "Overtaken", PROBLEMS, "{}"),
    ("policy.templates.loading", "TemplateFileError", USAGE, "{}"),
    ("policy.templates.templates", "TemplateError", USAGE, "{}"),
    ("message.vocabulary", "LanePatternError", USAGE, "{}"),
    ("message.envelope", "EnvelopeError", USAGE, "{}"),
    ("backends.kafka.clients", "KafkaTrouble", PROBLEMS, "{}"),
    ("backends.sql.errors", "SqlNoSchema", PROBLEMS, "{}: run `hongyan db upgrade`"),
    (
        "backends.sql.errors",
        "SqlNoDatabase",
        PROBLEMS,
        "the database's URL names a file that is no SQLite database, or a damaged one: {}",
    ),
    ("backends.sql.errors", "SqlError", PROBLEMS, "the database does not answer: {}"),
    ("hongyan_client.outbox.errors", "OutboxMissing", PROBLEMS, "{}"),
    ("hongyan_client.outbox.errors", "OutboxForbidden", PROBLEMS, "{}"),
    ("hongyan_client.outbox.errors", "OutboxRefused", PROBLEMS, "{}"),
    (
        "hongyan_client.outbox.errors",
        "OutboxTrouble",
        PROBLEMS,
        "the outbox's database does not answer: {}",
    ),
    ("idempotency.ledger", "LedgerError", PROBLEMS, "{}"),
    ("producer.ids.errors", "IdTrouble", PROBLEMS, "{}"),
    ("spark_jobs.errors", "SparkTrouble", PROBLEMS, "{}"),
    ("hongyan.spark.jars", "NoJars", PROBLEMS, "{}"),
    ("idempotency.lost.runs", "RunOvertaken", PROBLEMS, "{}"),
    ("message.states", "UnknownState", PROBLEMS, "{}"),
)
