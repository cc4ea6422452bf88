"""Sets fields of one table in a policy's text. Comments and order stay."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

TablePath = Sequence[str]
UNSET: Final = object()
"""Value of a field that its table shall not have."""


class NotEditable(Exception):
    """The text cannot be edited field by field: a person edits it whole."""


def own_values(text: str, path: TablePath) -> dict[str, Any]:
    """Returns the fields that the table sets, inner ones by dotted name."""
    table: Any = tomllib.loads(text)
    for part in path:
        table = table.get(part, {})
    if len(path) == 1:
        table = {key: value for key, value in table.items() if key not in _KINDS}
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and key != "accounts":
            flat |= {f"{key}.{inner}": below for inner, below in value.items()}
        else:
            flat[key] = value
    return flat


def edited(text: str, path: TablePath, values: Mapping[str, Any]) -> str:
    """Returns the text with these fields of the table set, or taken out for UNSET. Raises NotEditable."""
    wanted = _wanted(tomllib.loads(text), path, values)
    try:
        document = tomlkit.parse(text)
        table: Any = document
        for depth, part in enumerate(path):
            if part not in table:
                table[part] = tomlkit.table(is_super_table=depth < len(path) - 1)
            table = table[part]
        for key, value in values.items():
            _set(table, key, value)
        made = tomlkit.dumps(document)
        fits = _without_empty(tomllib.loads(made)) == _without_empty(wanted)
    except (TOMLKitError, ValueError, TypeError, AttributeError) as exc:
        raise NotEditable(str(exc)) from exc
    if not fits:
        raise NotEditable("the text came out differently")
    return made


def _set(table: Any, key: str, value: Any) -> None:
    inner, _, name = key.rpartition(".")
    if value is UNSET:
        holder = table.get(inner) if inner else table
        if holder is not None and name in holder:
            del holder[name]
            if inner and not holder:
                del table[inner]
        return
    if inner and inner not in table:
        table[inner] = tomlkit.inline_table()
    (table[inner] if inner else table)[name] = value


def _without_empty(table: dict[str, Any]) -> dict[str, Any]:
    """Returns the table without tables that set nothing."""
    kept = {
        key: _without_empty(value) if isinstance(value, dict) else value
        for key, value in table.items()
    }
    return {key: value for key, value in kept.items() if value != {}}


def _wanted(data: dict[str, Any], path: TablePath, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content that the edited text must have."""
    table = data
    for part in path:
        table = table.setdefault(part, {})
    for key, value in values.items():
        inner, _, name = key.rpartition(".")
        if value is not UNSET:
            (table.setdefault(inner, {}) if inner else table)[name] = value
        elif not inner:
            table.pop(name, None)
        elif inner in table:
            table[inner].pop(name, None)
            if not table[inner]:
                del table[inner]
    return data


_KINDS: Final = frozenset({"verification", "notice", "marketing"})
