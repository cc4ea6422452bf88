"""Maps expected errors to a sentence and an exit code; any other error is a bug."""

from __future__ import annotations

import sys

from hongyan.terminal import PROBLEMS, USAGE


class WrongUsage(Exception):
    """Flags that do not go together; one sentence says what to write."""


class NotDone(Exception):
    """An order that was not, or only partly, carried out; the text says what to do."""


def judged(exc: BaseException) -> tuple[str, int] | None:
    """Returns the sentence and the exit code; None for an unexpected error.

    Looks only at classes of loaded modules: any other cannot have been raised.
    """
    for module, name, code, sentence in _EXPECTED:
        known = getattr(sys.modules.get(module), name, None)
        if known is not None and isinstance(exc, known):
            return sentence.format(exc), code
    return None


_EXPECTED = (
    ("hongyan.errors", "WrongUsage", USAGE, "{}"),
    ("hongyan.errors", "NotDone", PROBLEMS, "{}"),
    ("backends.settings", "SettingsError", USAGE, "{}"),
    ("policy.loading", "PolicyError", USAGE, "{}"),
    ("policy.versions", "Overtaken", PROBLEMS, "{}"),
    ("policy.templates.loading", "TemplateFileError", USAGE, "{}"),
    ("policy.templates.templates", "TemplateError", USAGE, "{}"),
    ("message.vocabulary", "LanePatternError", USAGE, "{}"),
    ("message.envelope", "EnvelopeError", USAGE, "{}"),
    ("backends.kafka.clients", "KafkaTrouble", PROBLEMS, "{}"),
    ("backends.sql.errors", "SqlNoSchema", PROBLEMS, "{}: run `hongyan db upgrade`"),
    ("backends.sql.errors", "SqlError", PROBLEMS, "the database does not answer: {}"),
    ("idempotency.ledger", "LedgerError", PROBLEMS, "{}"),
    ("message.states", "UnknownState", PROBLEMS, "{}"),
)
