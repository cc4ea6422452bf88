"""`[templates.NAME.variables]`: `code = "string"`, or a table with type, default and so on."""

from __future__ import annotations

import re
from datetime import date
from typing import Any, Final

import msgspec

from backends.toml_text import did_you_mean
from policy.templates.page import Page, Place
from policy.templates.variables import TYPES, TemplateError, Variable

_KEYS: Final = ("type", "optional", "default", "items", "fields")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def variables(page: Page, table: dict[str, Any], place: Place) -> dict[str, Variable]:
    """Returns every variable without a problem; reports the others."""
    found = ((name, _variable(page, name, one, (*place, name))) for name, one in table.items())
    return {name: variable for name, variable in found if variable is not None}


def _variable(page: Page, name: str, declared: Any, place: Place) -> Variable | None:
    if not _NAME.fullmatch(name):
        page.report(place, "a variable's name has letters, digits and _, a letter first")
        return None
    table = {"type": declared} if isinstance(declared, str) else declared
    if not isinstance(table, dict):
        page.report(place, f"must be a type ({', '.join(TYPES)}), or a table with type")
        return None
    fields = variables(page, page.table(table, (*place, "fields")), (*place, "fields"))
    if not _sound(page, table, place):
        return None
    variable = Variable(
        type=table["type"],
        optional=table.get("optional", False),
        default=table.get("default", msgspec.UNSET),
        items=table.get("items", "string"),
        fields=fields,
        anything=not table.keys() & {"items", "fields"},
    )
    return _with_default(page, variable, place)


def _sound(page: Page, table: dict[str, Any], place: Place) -> bool:
    """Reports the declaration's problems. Returns True if it has none."""
    before = len(page.problems)
    for key in table:
        if key not in _KEYS:
            page.report((*place, key), f"unknown key{did_you_mean(key, _KEYS)}")
    for key in ("type", "items"):
        if (key == "type" or key in table) and table.get(key) not in TYPES:
            problem = f"{table[key]!r} is no type" if key in table else "is missing"
            hint = did_you_mean(table.get(key), TYPES) or f"; write one of {', '.join(TYPES)}"
            page.report((*place, key), f"{problem}{hint}")
    if not isinstance(table.get("optional", False), bool):
        page.report((*place, "optional"), "must be true or false")
    if table.get("type") != "list" and (odd := table.keys() & {"items", "fields"}):
        page.report((*place, min(odd)), "goes with lists")
    if {"items", "fields"} <= table.keys():
        page.report((*place, "items"), "does not go with fields; give one of them")
    return len(page.problems) == before


def _with_default(page: Page, variable: Variable, place: Place) -> Variable | None:
    """Returns the variable; None if its default is not of its type, which is reported."""
    if variable.default is msgspec.UNSET:
        return variable
    if isinstance(variable.default, date):  # TOML has dates of its own
        variable = msgspec.structs.replace(variable, default=variable.default.isoformat())
    try:
        variable.checked(variable.default, "default")
    except TemplateError as exc:
        page.report((*place, "default"), exc.detail.removeprefix("default: "))
        return None
    return variable
