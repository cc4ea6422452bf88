"""The policy's versions in the database. They are only ever added to; the newest is in force.

Once the first is applied, the file alone changes nothing (docs/decisions/047-policy-versions.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from difflib import unified_diff
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import Connection, bindparam, text

from backends.sql.database import Database
from policy.loading import digest

_COLUMNS: Final = "number, name, author, at, text, diff"
_NEWER: Final = text(f"""
SELECT {_COLUMNS} FROM policy_versions WHERE number > :known ORDER BY number DESC LIMIT 1""")  # noqa: S608
_ONE: Final = text(f"SELECT {_COLUMNS} FROM policy_versions WHERE number = :number")  # noqa: S608
_HISTORY: Final = text(f"""
SELECT {_COLUMNS} FROM policy_versions WHERE number < :before ORDER BY number DESC LIMIT :limit""")  # noqa: S608
_ADD: Final = text("""
INSERT INTO policy_versions (number, name, author, at, text, diff)
SELECT :number, :name, :author, :at, :text, :diff
 WHERE (SELECT coalesce(max(number), 0) FROM policy_versions) = :base
ON CONFLICT DO NOTHING""")
_KEEP: Final = text("""
INSERT INTO policy_texts AS known (version, at, text) VALUES (:version, :at, :text)
ON CONFLICT (version) DO UPDATE SET at = excluded.at
 WHERE EXISTS (SELECT 1 FROM policy_texts AS other
                WHERE other.version <> known.version AND other.at >= known.at)""")
"""A text that is not the newest comes into force again: its time is that of its return."""
_TEXTS: Final = text("""
SELECT name AS version, text FROM policy_versions WHERE name IN :versions
UNION ALL
SELECT version, text FROM policy_texts WHERE version IN :versions""").bindparams(
    bindparam("versions", expanding=True)
)
_MS: Final = 1_000
_BEYOND: Final = (1 << 31) - 1
_NOW: Final = text("SELECT hongyan_now()")


class Overtaken(Exception):
    """Another version was applied meanwhile; compare the changes with it."""


class Version(msgspec.Struct, frozen=True):
    """One applied policy."""

    number: int
    """From 1, without gaps."""
    name: str
    """`v3:` and the first hex digits of the text's SHA-256."""
    author: str
    at: int
    """Epoch milliseconds by the database's clock."""
    text: str
    diff: str
    """Against the version before; for the first one, against the file in force until then."""


def difference(before: str, after: str, old: str, new: str) -> str:
    """Returns the changes from one text to another, in unified form under these names."""
    lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(unified_diff(lines[0], lines[1], old, new))


class AppliedVersion(Protocol):
    """An applied policy, or applied templates."""

    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def author(self) -> str: ...
    @property
    def at(self) -> int: ...


def overtaken(newest: AppliedVersion | None, expected: int, what: str = "policy") -> str:
    """Returns the error text for a version `expected` (0: none) that is not the newest; `what` is `policy`
    or `templates`."""
    wanted = (
        f"{what[0] if what != 'policy' else 'v'}{expected}" if expected else "no applied version"
    )
    if newest is None:
        none = "no policy was" if what == "policy" else f"no {what} were"
        return f"{wanted} is expected, but {none} ever applied: look at the file's, and apply again"
    at = datetime.fromtimestamp(newest.at / _MS, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return (
        f"{wanted} is expected, but {newest.author} applied {newest.name} at {at}: see `hongyan {what}"
        f" history {newest.number}`, take its change over, and apply again"
    )


class Versions:
    """Every method raises SqlError and, but for `add`, nothing else. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self) -> Version | None:
        """Returns the version in force; None if none was ever applied."""
        return self.newer_than(0)

    def newer_than(self, number: int) -> Version | None:
        """Returns the version in force if its number is greater; else None. Reads the end of an index."""
        return self._one(_NEWER, known=number)

    def numbered(self, number: int) -> Version | None:
        """Returns the version of that number; None if there is none."""
        return self._one(_ONE, number=number)

    def history(self, limit: int, before: int | None = None) -> list[Version]:
        """Returns up to `limit` versions, the newest first; only those before a number, if one is given."""
        asked = {"limit": limit, "before": before or _BEYOND}
        with self._database.begin() as connection:
            return [Version(*row) for row in connection.execute(_HISTORY, asked)]

    def add(
        self,
        content: str,
        author: str,
        *,
        base: int,
        before: str,
        record: Callable[[Connection, Version], object] | None = None,
    ) -> Version:
        """Puts a text in force, after the version numbered `base` (0: none) whose text is `before`.

        `record` writes in the same transaction. Raises Overtaken if `base` is no longer the newest.
        """
        number = base + 1
        name = f"v{number}:{digest(content.encode())}"
        diff = difference(before, content, f"v{base}" if base else "file", f"v{number}")
        with self._database.begin() as connection:
            now = self._now_ms(connection)
            version = Version(number, name, author, now, content, diff)
            values = msgspec.structs.asdict(version) | {"base": base}
            if not connection.execute(_ADD, values).rowcount:
                raise Overtaken(overtaken(self._newest(connection), base))
            if record is not None:
                record(connection, version)
        return version

    def keep(self, version: str, content: str) -> None:
        """Puts the text of a policy without a number on record: a file's, or none for the defaults.

        Its time is when it came into force last. The newest text on record keeps its time.
        """
        with self._database.begin() as connection:
            values = {"version": version, "at": self._now_ms(connection), "text": content}
            connection.execute(_KEEP, values)

    def texts(self, versions: Collection[str]) -> dict[str, str]:
        """Returns the texts of these versions, as rows and events name them; unknown ones are left out.
        An empty text is the built-in defaults."""
        if not versions:
            return {}
        with self._database.begin() as connection:
            found = connection.execute(_TEXTS, {"versions": list(versions)})
            return {row.version: row.text for row in found}

    def _newest(self, connection: Connection) -> Version | None:
        row = connection.execute(_NEWER, {"known": 0}).one_or_none()
        return Version(*row) if row is not None else None

    def _one(self, statement: Any, **values: int) -> Version | None:
        with self._database.begin() as connection:
            row = connection.execute(statement, values).one_or_none()
        return Version(*row) if row is not None else None

    def _now_ms(self, connection: Connection) -> int:
        if self._database.is_postgres:
            return int(connection.execute(_NOW).scalar_one())
        return time.time_ns() // 1_000_000
