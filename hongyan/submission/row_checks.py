"""The checks of `hongyan send`, for the rows of campaigns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sending.receiver_check import ReceiverCheck
from sending.template_check import TemplateCheck

if TYPE_CHECKING:
    from backends.settings import Settings
    from policy.templates.templates import Templates
    from producer.campaigns.notifications import RowChecks


def row_checks(settings: Settings, templates: Templates) -> RowChecks:
    """Returns the checks with these templates and the accounts of hongyan.toml; for one thread."""
    from producer.campaigns.notifications import RowChecks

    return RowChecks(templates, TemplateCheck(templates), ReceiverCheck(settings.accounts))
