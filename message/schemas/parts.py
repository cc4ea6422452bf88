"""Parts that the published schemas share."""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
NULL: Final[Schema] = {"type": "null"}


def limited(meaning: str, base: Schema, limits: Schema) -> Schema:
    """Returns the schema of a field with its meaning and limits. If the field may be null, the limits are
    its other form's."""
    if "anyOf" not in base:
        return {"description": meaning} | base | limits
    forms = [one if one == NULL else one | limits for one in base["anyOf"]]
    return {"description": meaning} | base | {"anyOf": forms}


def embedded(schema: Schema) -> Schema:
    """Returns the schema without the members that only a document of its own has."""
    return {name: one for name, one in schema.items() if name not in ("$schema", "$id")}
