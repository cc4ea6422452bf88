"""The templates' versions in the database. They are only ever added to; the newest is in force.

A version holds the text and the texts of the files that it names. Once the first is applied, the file
alone changes nothing (docs/decisions/200-templates-are-applied-as-the-policy-is.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from backends.sql.database import Database
from policy.loading import digest
from policy.templates.page import NUL, TemplateSource
from policy.versions import Overtaken, difference, overtaken

_COLUMNS: Final = "number, name, author, at, text, files, diff"
_NEWER: Final = text(f"""
SELECT {_COLUMNS} FROM template_versions WHERE number > :known ORDER BY number DESC LIMIT 1""")  # noqa: S608
_ONE: Final = text(f"SELECT {_COLUMNS} FROM template_versions WHERE number = :number")  # noqa: S608
_HISTORY: Final = text(f"""
SELECT {_COLUMNS} FROM template_versions WHERE number < :before ORDER BY number DESC LIMIT :limit""")  # noqa: S608
_ADD: Final = text("""
INSERT INTO template_versions (number, name, author, at, text, files, diff)
SELECT :number, :name, :author, :at, :text, :files, :diff
 WHERE (SELECT coalesce(max(number), 0) FROM template_versions) = :base
ON CONFLICT DO NOTHING""")
_NOW: Final = text("SELECT hongyan_now()")
_BEYOND: Final = (1 << 31) - 1


class TemplateVersion(msgspec.Struct, frozen=True):
    """One applied templates.toml."""

    number: int
    """From 1, without gaps."""
    name: str
    """`t3:` and the first hex digits of the texts' SHA-256."""
    author: str
    at: int
    """Epoch milliseconds by the database's clock."""
    source: TemplateSource
    diff: str
    """Against the version before; for the first one, against the file in force until then."""


class TemplateVersions:
    """Every method raises SqlError and, but for `add`, nothing else. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self) -> TemplateVersion | None:
        """Returns the version in force; None if none was ever applied."""
        return self.newer_than(0)

    def newer_than(self, number: int) -> TemplateVersion | None:
        """Returns the version in force if its number is greater; else None. Reads the end of an index."""
        return self._one(_NEWER, known=number)

    def numbered(self, number: int) -> TemplateVersion | None:
        """Returns the version of that number; None if there is none."""
        return self._one(_ONE, number=number)

    def history(self, limit: int, before: int | None = None) -> list[TemplateVersion]:
        """Returns up to `limit` versions, the newest first; only those before a number, if one is given."""
        asked = {"limit": limit, "before": before or _BEYOND}
        with self._database.begin() as connection:
            return [_version(row) for row in connection.execute(_HISTORY, asked)]

    def add(
        self,
        source: TemplateSource,
        author: str,
        *,
        base: int,
        before: TemplateSource,
        record: Callable[[Connection, TemplateVersion], object] | None = None,
    ) -> TemplateVersion:
        """Puts texts in force, after the version numbered `base` (0: none) whose texts are `before`.

        `record` writes in the same transaction. Raises Overtaken if `base` is no longer the newest.
        """
        number = base + 1
        name = f"t{number}:{digest(NUL.join((source.text, *source.files.values())).encode())}"
        diff = source_difference(before, source, f"t{base}" if base else "file", f"t{number}")
        with self._database.begin() as connection:
            now = self._now_ms(connection)
            version = TemplateVersion(number, name, author, now, source, diff)
            if not connection.execute(_ADD, _values(version) | {"base": base}).rowcount:
                newest = connection.execute(_NEWER, {"known": 0}).one_or_none()
                raise Overtaken(overtaken(_version(newest) if newest else None, base, _TEMPLATES))
            if record is not None:
                record(connection, version)
        return version

    def _one(self, statement: Any, **values: int) -> TemplateVersion | None:
        with self._database.begin() as connection:
            row = connection.execute(statement, values).one_or_none()
        return _version(row) if row is not None else None

    def _now_ms(self, connection: Connection) -> int:
        if self._database.is_postgres:
            return int(connection.execute(_NOW).scalar_one())
        return time.time_ns() // 1_000_000


_TEMPLATES: Final = "templates"


def source_difference(before: TemplateSource, after: TemplateSource, old: str, new: str) -> str:
    """Returns the changes of the text, then those of each file that it names."""
    found = difference(before.text, after.text, old, new)
    for name in sorted(before.files.keys() | after.files.keys()):
        texts = before.files.get(name, ""), after.files.get(name, "")
        found += difference(*texts, f"{old}/{name}", f"{new}/{name}")
    return found


def _values(version: TemplateVersion) -> dict[str, Any]:
    values = {name: getattr(version, name) for name in ("number", "name", "author", "at", "diff")}
    files = msgspec.json.encode(version.source.files).decode()
    return values | {"text": version.source.text, "files": files}


def _version(row: Any) -> TemplateVersion:
    files = msgspec.json.decode(row.files, type=dict[str, str])
    source = TemplateSource(row.text, files)
    return TemplateVersion(row.number, row.name, row.author, row.at, source, row.diff)
