"""Templates as a recovery holds them."""

from channels.template_support import TEMPLATE_SUPPORT
from policy.templates.active import ActiveTemplates, TemplateFollower
from policy.templates.page import TemplateSource
from policy.templates.templates import Templates


def followed(templates: Templates) -> TemplateFollower:
    """Returns a follower of these templates, which never change."""
    now = ActiveTemplates(templates, 0, TemplateSource("", {}), file_differs=False)
    return TemplateFollower(now, None, TEMPLATE_SUPPORT)
