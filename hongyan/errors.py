"""Expected errors, as one sentence and an exit code; any other is a bug and keeps its traceback."""

from __future__ import annotations

import sys

from hongyan.terminal import PROBLEMS, USAGE


class WrongUsage(Exception):
    """Flags that do not go together; one sentence says what to write."""


class NotDone(Exception):
    """It could not be done now, or not all of it; one sentence says what to do."""


def judged(exc: BaseException) -> tuple[str, int] | None:
    """The sentence and the exit code; None for what nobody expected.

    Looks only at classes of modules that were loaded: one that was not cannot have raised.
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
