"""The checks of `hongyan send`, for the rows of campaigns."""

from __future__ import annotations

from backends.settings import Settings
from policy.templates.templates import Templates
from producer.campaigns.notifications import RowChecks
from sending.receiver_check import ReceiverCheck
from sending.template_check import TemplateCheck


def row_checks(settings: Settings, templates: Templates) -> RowChecks:
    """Returns the checks with these templates and the accounts of hongyan.toml; for one thread."""
    return RowChecks(templates, TemplateCheck(templates), ReceiverCheck(settings.accounts))
