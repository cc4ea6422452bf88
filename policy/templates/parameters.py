"""Parameters of a template as a person types them: texts, parsed by the template's types."""

from __future__ import annotations

from typing import Any

from message.envelope import EnvelopeError
from policy.templates.templates import TemplateError, Templates


def typed(fields: dict[str, Any], templates: Templates) -> dict[str, Any]:
    """Returns the fields; parses texts of template parameters by type. Raises EnvelopeError."""
    named = fields.get("template")
    template = templates.get(named["id"]) if named else None
    if named is None or template is None:
        return fields
    try:
        params = template.parsed(named["params"])
    except TemplateError as exc:
        raise EnvelopeError(exc.code, "$.template", exc.detail) from exc
    return {**fields, "template": {**named, "params": params}}
