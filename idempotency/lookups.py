"""Searches in the ledger, for commands, the console and recovery; nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, bindparam, text

from backends.sql.database import Database
from idempotency.error_mapping import errors
from idempotency.key_days import day_of_key
from idempotency.payload_cipher import PayloadCipher, PayloadUnreadable

LIMIT: Final = 1_000
"""Rows that one search returns at most: a notification has no more receivers."""


class FoundRow(msgspec.Struct, frozen=True):
    """One row of the view `hongyan_deliveries`; times are epoch milliseconds by the database's clock."""

    delivery_key: str
    message_id: str
    biz_id: str | None
    channel: str
    kind: str
    lane: str
    state: str
    reason: str | None
    attempt: int
    owner: str
    provider_id: str | None
    created_at: int
    updated_at: int
    next_at: int | None
    expires_at: int
    policy_version: str
    resend_of: str | None
    account: str | None = None
    refusals: int = 0
    template: str | None = None


class _TemplateNamed(msgspec.Struct):
    id: str


class _NamesTemplate(msgspec.Struct):
    """The part of a payload that names its template."""

    template: _TemplateNamed | None = None


class KeptRow(msgspec.Struct, frozen=True):
    """The contents needed to send a delivery again. Holds personal data: not for logs."""

    payload: bytes
    receiver: str


_ROWS = "SELECT {columns} FROM hongyan_deliveries WHERE {column} = :value ORDER BY created_at, delivery_key"
_COLUMNS = ", ".join(FoundRow.__struct_fields__)  # a later version's view may have more
_BY_MESSAGE = text(_ROWS.format(columns=_COLUMNS, column="message_id"))
_BY_BIZ = text(_ROWS.format(columns=_COLUMNS, column="biz_id"))
_BY_KEY = text(_ROWS.format(columns=_COLUMNS, column="delivery_key"))
_BY_KEYS = text(
    f"SELECT {_COLUMNS} FROM hongyan_deliveries WHERE delivery_key IN :keys"  # noqa: S608
).bindparams(bindparam("keys", expanding=True))
_LANES = text("SELECT DISTINCT lane FROM hongyan_deliveries WHERE message_id = :value")
_COUNTS = text("SELECT lane, state, count(*) FROM hongyan_deliveries GROUP BY lane, state")
_KEPT: Final = """
SELECT d.message_id, d.receiver, coalesce(d.payload, p.payload) AS payload
  FROM deliveries AS d
  LEFT JOIN payloads AS p
    ON p.message_id = d.message_id AND p.body_digest = d.body_digest AND p.day = d.day
 WHERE d.delivery_key = :key"""
_RECEIVERS = text("""
SELECT delivery_key, message_id, receiver FROM deliveries WHERE delivery_key IN :keys""").bindparams(
    bindparam("keys", expanding=True)
)
_PAYLOADS = text("""
SELECT d.delivery_key, d.message_id, coalesce(d.payload, p.payload) AS payload
  FROM deliveries AS d
  LEFT JOIN payloads AS p
    ON p.message_id = d.message_id AND p.body_digest = d.body_digest AND p.day = d.day
 WHERE d.delivery_key IN :keys""").bindparams(bindparam("keys", expanding=True))
_PAGE: Final = 500
"""Keys of one statement."""


class Queries:
    """Searches in one database. Every method raises LedgerError and nothing else of the database's."""

    def __init__(self, database: Database, sealer: PayloadCipher | None = None) -> None:
        self._database = database
        self._sealer = sealer or PayloadCipher()

    def by_message(self, message_id: str) -> list[FoundRow]:
        """Returns the deliveries of one notification."""
        return self._rows(_BY_MESSAGE, message_id)

    def lanes_of(self, message_id: str) -> set[str]:
        """Returns the lanes that have deliveries of this message id."""
        with errors(), self._database.begin() as connection:
            return set(connection.execute(_LANES, {"value": message_id}).scalars())

    def by_key(self, delivery_key: str) -> FoundRow | None:
        """Returns one delivery; None for an unknown key."""
        return next(iter(self._rows(_BY_KEY, delivery_key)), None)

    def by_keys(self, keys: Sequence[str]) -> list[FoundRow]:
        """Returns the deliveries of these keys, LIMIT at most, in one query and no order."""
        with errors(), self._database.begin() as connection:
            found = connection.execute(_BY_KEYS, {"keys": list(keys[:LIMIT])}).mappings().all()
        return [FoundRow(**row) for row in found]

    def by_biz(self, biz_id: str) -> list[FoundRow]:
        """Returns the deliveries of every notification with this business id, oldest first."""
        return self._rows(_BY_BIZ, biz_id)

    def find(self, name: str) -> list[FoundRow]:
        """Returns the rows of a delivery key, else of a message id, else of a business id."""
        one = self.by_key(name)
        return [one] if one else self.by_message(name) or self.by_biz(name)

    def counts(self) -> dict[tuple[str, str], int]:
        """Returns (lane, state) to number of deliveries. Reads the whole ledger: not for polling."""
        with errors(), self._database.begin() as connection:
            return {(lane, state): n for lane, state, n in connection.execute(_COUNTS)}

    def kept(self, delivery_key: str, day: int | None = None) -> KeptRow | None:
        """Returns payload and receiver, opened; None for an unknown key. Whoever knows its day spares its
        lookup. Raises PayloadUnreadable."""
        with errors(), self._database.reading() as connection:
            row = self._kept_row(connection, delivery_key, day)
        if row is None:
            return None
        payload = self._sealer.open(bytes(row.payload), row.message_id)
        return KeptRow(payload, self._sealer.open(bytes(row.receiver), row.message_id).decode())

    def _kept_row(self, connection: Connection, key: str, day: int | None) -> Row[Any] | None:
        """The day is a literal: to plan over two months' partitions takes longer than all the rest."""
        query = _KEPT
        if self._database.is_postgres:
            day = day if day is not None else day_of_key(connection, key)
            if day is None:
                return None
            query = f"{_KEPT} AND d.day = {int(day)}"
        return connection.execute(text(query), {"key": key}).one_or_none()

    def receivers(self, keys: Sequence[str]) -> dict[str, str]:
        """Returns delivery key to receiver, opened; leaves out rows that need another payload key."""
        found: dict[str, str] = {}
        for start in range(0, len(keys), _PAGE):
            with errors(), self._database.begin() as connection:
                asked = {"keys": keys[start : start + _PAGE]}
                rows = connection.execute(_RECEIVERS, asked).all()
            for row in rows:
                try:
                    opened = self._sealer.open(bytes(row.receiver), row.message_id)
                except PayloadUnreadable:
                    continue
                found[row.delivery_key] = opened.decode()
        return found

    def templates(self, keys: Sequence[str]) -> dict[str, str]:
        """Returns delivery key to the name of its template, by the kept payload. Leaves out rows without a
        template, and rows that need another payload key."""
        found: dict[str, str] = {}
        for start in range(0, len(keys), _PAGE):
            with errors(), self._database.begin() as connection:
                asked = {"keys": keys[start : start + _PAGE]}
                rows = connection.execute(_PAYLOADS, asked).all()
            for row in rows:
                name = self._template(bytes(row.payload or b""), row.message_id)
                if name is not None:
                    found[row.delivery_key] = name
        return found

    def _template(self, payload: bytes, message_id: str) -> str | None:
        try:
            opened = self._sealer.open(payload, message_id)
            named = msgspec.json.decode(opened, type=_NamesTemplate).template
        except (PayloadUnreadable, msgspec.DecodeError):
            return None
        return named.id if named is not None else None

    def _rows(self, statement: Any, value: str) -> list[FoundRow]:
        with errors(), self._database.begin() as connection:
            found = connection.execute(statement, {"value": value}).mappings().fetchmany(LIMIT)
        return [FoundRow(**row) for row in found]
