"""Typed variables of templates, and the checks of their values.

    string | int | number | bool      as JSON has them; a bool is no int
    date                              ISO 8601, a day or a day and time
    list                              `items = "string"` or `fields = {name = "string", …}`; else anything

A value is never shown in an error: it may be a verification code, and errors are logged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any, Final, Literal

import msgspec

from backends.toml_text import did_you_mean
from message.foreign_text import shown_name

Type = Literal["string", "int", "number", "bool", "date", "list"]
TYPES: Final[tuple[Type, ...]] = ("string", "int", "number", "bool", "date", "list")
_DAY: Final = len("2026-11-21")
_TRUTH: Final = {"true": True, "false": False}


class TemplateError(ValueError):
    """A notification that its template cannot make: `code` for programs, `detail` for people.

    Codes: template_unknown, template_channel, variable_missing, variable_surplus, variable_type,
    template_failed, template_too_large.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Variable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One variable as templates.toml declares it."""

    type: Type
    optional: bool = False
    """May be left out; then it is null and prints nothing."""
    default: Any = msgspec.UNSET
    """Value of a variable that is left out, as written in the file."""
    items: Type = "string"
    """Type of a list's items. Only with `list`."""
    fields: dict[str, Variable] = {}
    """Fields of a list's tables, instead of `items`."""
    anything: bool = False
    """Whether it is a list with neither of the two. Not a key of the file."""

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return not self.optional and self.default is msgspec.UNSET

    def checked(self, value: Any, path: str) -> Any:
        """Returns the value as templates see it. Raises TemplateError with its path."""
        if value is None and self.optional:
            return None
        if self.type == "list":
            return self._list(value, path)
        return _CHECKS[self.type](value, path)

    def parsed(self, text: str, path: str) -> Any:
        """Returns the value of a command line's text, not yet checked. Raises TemplateError."""
        if self.type in ("string", "date"):
            return text
        if self.type == "bool":
            return _TRUTH.get(text.lower(), text)
        try:
            return json.loads(text)
        except RecursionError:
            raise _wrong(path, "the value is nested too deeply") from None
        except ValueError:
            wanted = "a list as JSON, such as [1, 2]" if self.type == "list" else f"{self.type}"
            raise _wrong(path, f"expected {wanted}") from None

    def _list(self, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(path, f"expected list, got {_kind(value)}")
        if self.anything:
            return value
        if self.fields:
            return [self._table(item, f"{path}[{i}]") for i, item in enumerate(value)]
        one = Variable(type=self.items, anything=True)
        return [one.checked(item, f"{path}[{i}]") for i, item in enumerate(value)]

    def _table(self, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(path, f"expected a table, got {_kind(value)}")
        return checked_all(self.fields, value, f"{path}.")


def checked_all(
    variables: Mapping[str, Variable], given: Mapping[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """Returns every variable's value. Raises TemplateError for the first that is missing, surplus or of
    another type. `prefix` comes before names in errors."""
    for name in given:
        if name not in variables:
            known = _hint(name, variables)
            raise TemplateError(
                "variable_surplus", f"{prefix}{shown_name(name)}: no such variable{known}"
            )
    return {name: _one(variable, name, given, prefix) for name, variable in variables.items()}


def _one(variable: Variable, name: str, given: Mapping[str, Any], prefix: str) -> Any:
    path = f"{prefix}{name}"
    if name in given:
        return variable.checked(given[name], path)
    if variable.default is not msgspec.UNSET:
        return variable.checked(variable.default, path)
    if variable.optional:
        return None
    raise TemplateError("variable_missing", f"{path}: is missing; it must be {_named(variable)}")


def _string(value: Any, path: str) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(path, f"expected string, got {_kind(value)}")


def _int(value: Any, path: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _wrong(path, f"expected int, got {_kind(value)}")


def _number(value: Any, path: str) -> int | float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(path, f"expected number, got {_kind(value)}")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an int that no float holds
        finite = False
    if not finite:
        raise _wrong(path, "expected number, got one beyond all bounds")
    return value


def _bool(value: Any, path: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(path, f"expected bool, got {_kind(value)}")


def _date(value: Any, path: str) -> date:
    if not isinstance(value, str):
        raise _wrong(path, f"expected date, got {_kind(value)}")
    try:
        return date.fromisoformat(value) if len(value) == _DAY else datetime.fromisoformat(value)
    except ValueError:
        form = "write 2026-11-21 or 2026-11-21T09:30:00+08:00"
        raise _wrong(path, f"expected date, got another text; {form}") from None


_CHECKS: Final = {
    "string": _string,
    "int": _int,
    "number": _number,
    "bool": _bool,
    "date": _date,
}
_KINDS: Final = (
    (bool, "bool"),
    (str, "string"),
    (int, "int"),
    (float, "number"),
    (list, "list"),
    (dict, "table"),
)


def _kind(value: Any) -> str:
    """Returns the type of a JSON value, in the file's words."""
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")


def _named(variable: Variable) -> str:
    if variable.fields:
        return f"list of tables with {', '.join(variable.fields)}"
    return variable.type


def _wrong(path: str, text: str) -> TemplateError:
    return TemplateError("variable_type", f"{path}: {text}")


def _hint(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    listed = f"; there are {', '.join(names)}" if names else "; there are none"
    return did_you_mean(name, names) or listed
