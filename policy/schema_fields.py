"""The schema's fields as data: type, limits, choices, help. Forms are made from them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from textwrap import dedent
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect as shapes

from policy.parser import INNER_TABLES
from policy.schema import LanePolicy

_BARE: Final = (shapes.IntType, shapes.FloatType, shapes.StrType)


class PolicyField(NamedTuple):
    """One field of a lane's policy."""

    key: str
    """Such as `threads`, or `retry.attempts` for a field of an inner table."""
    kind: str
    """int, float, bool, choice, text or value. A value is written as in the file."""
    choices: Sequence[str]
    least: float | None
    """The least value; None: no limit."""
    most: float | None
    help: str
    """The schema's own words; empty: the name says it."""

    @property
    def table(self) -> str:
        """Name of the inner table; empty for a field of the lane itself."""
        return self.key.rpartition(".")[0]


@cache
def policy_fields() -> tuple[PolicyField, ...]:
    """Returns every field in the schema's order."""
    return tuple(_fields(LanePolicy, ""))


def _fields(struct: type[msgspec.Struct], within: str) -> Iterator[PolicyField]:
    info = shapes.type_info(struct)
    assert isinstance(info, shapes.StructType)
    words = _docstrings(struct)
    for field in info.fields:
        if not within and field.name in INNER_TABLES:
            yield from _fields(INNER_TABLES[field.name], field.name)
        else:
            key = f"{within}.{field.name}" if within else field.name
            yield _field(key, field.type, words.get(field.name, ""))


def _field(key: str, kind: shapes.Type, words: str) -> PolicyField:
    if isinstance(kind, shapes.UnionType):
        kind = next(one for one in kind.types if not isinstance(one, shapes.NoneType))
    least, most = getattr(kind, "ge", None), getattr(kind, "le", None)
    above, below = getattr(kind, "gt", None), getattr(kind, "lt", None)
    choices = [str(one) for one in kind.cls] if isinstance(kind, shapes.EnumType) else []
    lowest = least if least is not None else above
    highest = most if most is not None else below
    return PolicyField(key, _name(kind), choices, lowest, highest, words)


def _name(kind: shapes.Type) -> str:
    if isinstance(kind, shapes.EnumType):
        return "choice"
    if isinstance(kind, shapes.BoolType):
        return "bool"
    if isinstance(kind, _BARE):
        return {"IntType": "int", "FloatType": "float", "StrType": "text"}[type(kind).__name__]
    return "value"


def _docstrings(struct: type[msgspec.Struct]) -> Mapping[str, str]:
    """Returns the text below each field of the class; none where the source is not at hand."""
    try:
        body: Any = ast.parse(dedent(inspect.getsource(struct))).body[0]
    except (OSError, SyntaxError):
        return {}
    found: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            words = after.value.value if isinstance(after, ast.Expr) else None  # type: ignore[attr-defined]
            if isinstance(words, str):
                found[field.target.id] = " ".join(words.split())
    return found
