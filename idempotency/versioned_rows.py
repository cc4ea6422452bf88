"""Rows of long work that a person orders, such as resend jobs and campaigns: a struct a row, written under
its version, moved from state to state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection, text

R = TypeVar("R", bound=Any)


class RowKind(NamedTuple):
    """One table of such rows. Its columns are the struct's fields; `state`, `since` and `version` are among
    them."""

    table: str
    noun: str
    """As a person knows it, such as `job`."""
    can_move: Callable[[Any, Any], bool]
    """Whether a state leads to another."""
    overtaken: Callable[[str], Exception]
    """Makes the error of a row that another process changed; takes its sentence."""

    def insert(self, connection: Connection, row: Any) -> None:
        """Writes a new row in the caller's transaction."""
        values = {name: column_value(getattr(row, name)) for name in row.__struct_fields__}
        columns, places = ", ".join(values), ", ".join(f":{name}" for name in values)
        statement = f"INSERT INTO {self.table} ({columns}) VALUES ({places})"  # noqa: S608 - ours
        connection.execute(text(statement), values)

    def advance(self, connection: Connection, row: R, now: int, **changes: Any) -> R:
        """Writes the changes, if the row still has its version. Returns the row after them. Raises the
        error of `overtaken`, and ValueError for a move that there is not."""
        target = changes.get("state", row.state)
        if target is not row.state:
            if not self.can_move(row.state, target):
                raise ValueError(f"a {self.noun} does not go from {row.state} to {target}")
            changes["since"] = now
        changes["version"] = row.version + 1
        spelt = ", ".join(f"{name} = :{name}" for name in changes)
        statement = f"UPDATE {self.table} SET {spelt} WHERE id = :its_id AND version = :its_version"  # noqa: S608
        values = {name: column_value(value) for name, value in changes.items()}
        values |= {"its_id": row.id, "its_version": row.version}
        if not connection.execute(text(statement), values).rowcount:
            raise self.overtaken(f"{self.noun} {row.id} was changed meanwhile: look at it again")
        return msgspec.structs.replace(row, **changes)


def column_value(value: Any) -> Any:
    """Returns a field's value as its column has it: a struct as JSON, an enum as its text, a truth as 0 or
    1."""
    if isinstance(value, msgspec.Struct):
        return msgspec.json.encode(value).decode()
    if isinstance(value, bool):
        return int(value)
    return value.value if isinstance(value, Enum) else value


def fields_of(row: Any, structs: Mapping[str, type]) -> dict[str, Any]:
    """Returns the columns of a row, those of `structs` decoded; an empty text is the default value."""
    fields: dict[str, Any] = row._asdict()
    for name, kind in structs.items():
        fields[name] = msgspec.json.decode(fields[name] or "{}", type=kind)
    return fields
