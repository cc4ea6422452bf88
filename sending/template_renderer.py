"""Renders the templates of our own for a worker and for recovery.

A notification over which a template fails must not end the process, which would read it again.
"""

from __future__ import annotations

import structlog

from backends.logs import where
from backends.settings import Settings
from backends.sql.database import Database
from channels.template_support import TEMPLATE_SUPPORT
from idempotency.error_mapping import errors
from message.delivery import Rendered, private_of
from message.envelope import Notification
from message.foreign_text import shown, shown_name
from message.reasons import TEMPLATE_FAILED
from policy.templates.active import TemplateFollower, templates_in_force
from policy.templates.templates import Templates
from policy.templates.variables import TemplateError
from policy.templates.versions import TemplateVersions

log = structlog.get_logger(__name__)


class TemplateRejected(Exception):
    """A notification whose template cannot be rendered: `reason` for the ledger, as `code: sentence`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def followed_templates(settings: Settings, database: Database) -> TemplateFollower:
    """Returns the templates in force, which follow later versions.

    Raises TemplateFileError, LedgerError.
    """
    versions = TemplateVersions(database)
    with errors():
        now = templates_in_force(settings, versions, TEMPLATE_SUPPORT)
    if now.file_differs:
        log.warning(
            "templates_file_differs",
            follows=now.templates.version,
            what="the applied version counts; `hongyan templates apply` puts the file in force",
        )
    return TemplateFollower(now, versions, TEMPLATE_SUPPORT)


def rendered(templates: Templates, notification: Notification) -> Rendered | None:
    """Returns the rendered template; None if it names none of ours. Raises TemplateRejected."""
    try:
        return templates.render(notification)
    except TemplateError as exc:
        detail = shown(exc.detail, private_of(notification))
        raise TemplateRejected(f"{exc.code}: {detail}") from exc
    except Exception as exc:
        named = notification.template
        name = shown_name(named.id) if named else None
        cause = type(exc).__name__
        log.error("template_failed", template=name, cause=cause, where=where(exc))
        raise TemplateRejected(f"{TEMPLATE_FAILED}: template {name!r}: {cause}") from exc
