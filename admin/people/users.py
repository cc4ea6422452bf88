"""Users and their roles in the ledger's database."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from sqlalchemy import Connection, text

from admin.access import ANY_LANE, Person, Role, are_all_lanes
from admin.people.passwords import hashed
from backends.sql.database import Database
from idempotency.error_mapping import errors
from idempotency.transactions import Clock
from message.vocabulary import LanePatternError, lanes_matching

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
LANGUAGES: Final = ("", "en", "zh")
THEMES: Final = ("", "light", "dark")
Roles = Mapping[Role, tuple[str, ...]]
_COLUMNS: Final = "u.id, u.name, u.password_hash, u.oidc_subject, u.state, u.language, u.theme"
_ONE: Final = f"SELECT {_COLUMNS}, u.created_at FROM console_users AS u WHERE "  # noqa: S608
_BY_NAME: Final = text(f"{_ONE} u.name = :name")
_BY_SUBJECT: Final = text(f"{_ONE} u.oidc_subject = :subject")
_BY_ID: Final = text(f"{_ONE} u.id = :id")
_HELD_BY_ID: Final = text(f"{_ONE} u.id = :id FOR NO KEY UPDATE")
_ALL: Final = text(f"{_ONE} u.name > :after ORDER BY u.name LIMIT :limit")
_ROLES: Final = text("SELECT user_id, role, lanes FROM console_roles WHERE user_id = :id")
_ADD: Final = text("""
INSERT INTO console_users
       (name, password_hash, oidc_subject, state, language, theme, created_at, created_by)
VALUES (:name, :hash, :subject, 'ACTIVE', '', '', :now, :by)
ON CONFLICT DO NOTHING RETURNING id""")
_FORGET_ROLES: Final = text("DELETE FROM console_roles WHERE user_id = :id")
_ADD_ROLE: Final = text(
    "INSERT INTO console_roles (user_id, role, lanes) VALUES (:id, :role, :lanes)"
)
_END_SESSIONS: Final = text("DELETE FROM console_sessions WHERE user_id = :id")
_BIND: Final = text("""
UPDATE console_users SET oidc_subject = :subject
 WHERE id = :id AND oidc_subject IS NULL AND password_hash = ''""")
_SET_HASH: Final = text("UPDATE console_users SET password_hash = :hash WHERE id = :id")
_SET_STATE: Final = text("UPDATE console_users SET state = :state WHERE id = :id")
_SET_LOOKS: Final = text(
    "UPDATE console_users SET language = :language, theme = :theme WHERE id = :id"
)
_ADMINS: Final = text("""
SELECT r.lanes FROM console_roles AS r JOIN console_users AS u ON u.id = r.user_id
 WHERE r.role = 'admin' AND u.state = 'ACTIVE' AND u.id <> :id""")
_LOCK: Final = text("LOCK TABLE console_roles IN SHARE ROW EXCLUSIVE MODE")


class UserState(StrEnum):
    """States of a user."""

    ACTIVE = "ACTIVE"
    DISABLED = "DISABLED"


class UserRefused(Exception):
    """A change of people that is refused; the text is the key of a sentence."""


class ConsoleUser(msgspec.Struct, frozen=True):
    """One user. Holds the hash of a password: not for pages."""

    id: int
    name: str
    password_hash: str
    oidc_subject: str | None
    state: str
    language: str
    theme: str
    created_at: int
    roles: dict[Role, tuple[str, ...]] = {}

    def person(self) -> Person:
        """Returns the user as pages know it."""
        return Person(
            self.id, self.name, self.roles, self.language, self.theme, bool(self.password_hash)
        )


def roles_of(written: str) -> dict[Role, tuple[str, ...]]:
    """Returns the roles in a text as "operator:sms.*,email.notice viewer"; without lanes: all. Raises
    ValueError with a sentence."""
    found: dict[Role, tuple[str, ...]] = {}
    for part in written.split():
        name, colon, lanes = part.partition(":")
        if name not in set(Role):
            raise ValueError(f"there is no role {name!r}: it is one of {', '.join(Role)}")
        found[Role(name)] = lanes_of(lanes) if colon else (ANY_LANE,)
    return found


def lanes_of(written: str) -> tuple[str, ...]:
    """Returns the patterns of lanes in a text, separated by commas; none: all lanes. Raises ValueError."""
    patterns = tuple(dict.fromkeys(one.strip() for one in written.split(",") if one.strip()))
    try:
        lanes_matching(patterns)
    except LanePatternError as exc:
        raise ValueError(str(exc)) from exc
    return patterns or (ANY_LANE,)


def written(roles: Roles) -> str:
    """Returns the text from which `roles_of` reads these roles."""
    return " ".join(f"{role}:{','.join(roles[role])}" for role in Role if role in roles)


def _is_admin(roles: Roles) -> bool:
    """Returns whether People and Audit are open to these roles: an admin of some lanes has neither."""
    return are_all_lanes(roles.get(Role.ADMIN, ()))


class Users:
    """Reads and changes users. The caller owns each transaction: a change and its audit are one."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def named(self, connection: Connection, name: str) -> ConsoleUser | None:
        """Returns the user of that name; None without one."""
        return self._one(connection, _BY_NAME, name=name)

    def numbered(self, connection: Connection, user: int) -> ConsoleUser | None:
        """Returns the user of that number; None without one."""
        return self._one(connection, _BY_ID, id=user)

    def held(self, connection: Connection, known: ConsoleUser) -> bool:
        """Returns whether a user that was read before has the same password and may come in. Nobody changes
        that until the transaction ends."""
        held = _HELD_BY_ID if self._database.is_postgres else _BY_ID
        found = self._one(connection, held, id=known.id)
        return (
            found is not None
            and found.password_hash == known.password_hash
            and found.state == UserState.ACTIVE
        )

    def of_subject(self, connection: Connection, subject: str) -> ConsoleUser | None:
        """Returns the user of an OIDC provider's subject; None without one."""
        return self._one(connection, _BY_SUBJECT, subject=subject)

    def page(self, after: str = "", limit: int = 100) -> list[ConsoleUser]:
        """Returns users by name, those behind `after`. Raises LedgerError."""
        with errors(), self._database.begin() as connection:
            rows = connection.execute(_ALL, {"after": after, "limit": limit}).mappings().all()
            return [ConsoleUser(**row, roles=self._roles(connection, row["id"])) for row in rows]

    def add(
        self, connection: Connection, name: str, *, by: str, password: str = "", subject: str = ""
    ) -> int:
        """Adds a user without roles. Returns its number. Raises UserRefused."""
        if not NAME.fullmatch(name):
            raise UserRefused("people.bad_name")
        values = {
            "name": name,
            "hash": hashed(password) if password else "",
            "subject": subject or None,
            "now": self._clock(connection),
            "by": by,
        }
        number = connection.execute(_ADD, values).scalar()
        if number is None:
            raise UserRefused("people.name_taken")
        return int(number)

    def bind_subject(self, connection: Connection, user: int, subject: str) -> bool:
        """Binds a user without password to a provider's subject. Returns False if it is bound already."""
        return bool(connection.execute(_BIND, {"id": user, "subject": subject}).rowcount)

    def lock_roles(self, connection: Connection) -> None:
        """Lets nobody else change roles until the transaction ends. Whoever changes a user and its roles
        calls it before the first change: so does `set_roles`, and the audit's lock comes last."""
        if self._database.is_postgres:
            connection.execute(_LOCK)

    def set_roles(self, connection: Connection, user: int, roles: Roles) -> None:
        """Replaces the roles, and ends the sessions. Raises UserRefused if no admin would remain."""
        if not self._is_admin_enough(connection, user, _is_admin(roles)):
            raise UserRefused("people.last_admin")
        connection.execute(_FORGET_ROLES, {"id": user})
        for role, lanes in roles.items():
            values = {"id": user, "role": str(role), "lanes": ",".join(lanes)}
            connection.execute(_ADD_ROLE, values)
        connection.execute(_END_SESSIONS, {"id": user})

    def set_password(self, connection: Connection, user: int, password: str) -> None:
        """Replaces the password, and ends the sessions."""
        connection.execute(_SET_HASH, {"id": user, "hash": hashed(password)})
        connection.execute(_END_SESSIONS, {"id": user})

    def set_state(self, connection: Connection, user: int, state: UserState) -> None:
        """Disables or enables, and ends the sessions. Raises UserRefused for the last admin."""
        if state is UserState.DISABLED and not self._is_admin_enough(connection, user, False):
            raise UserRefused("people.last_admin")
        connection.execute(_SET_STATE, {"id": user, "state": str(state)})
        connection.execute(_END_SESSIONS, {"id": user})

    def set_looks(self, connection: Connection, user: int, language: str, theme: str) -> None:
        """Sets language and theme; an unknown one counts as none."""
        values = {
            "language": language if language in LANGUAGES else "",
            "theme": theme if theme in THEMES else "",
        }
        connection.execute(_SET_LOOKS, {"id": user} | values)

    def _is_admin_enough(self, connection: Connection, user: int, stays: bool) -> bool:
        """Whether an active admin of all lanes remains if this user stays one or not."""
        self.lock_roles(connection)
        if stays or not _is_admin(self._roles(connection, user)):
            return True
        others = connection.execute(_ADMINS, {"id": user}).scalars()
        return any(are_all_lanes(lanes.split(",")) for lanes in others)

    def _one(
        self, connection: Connection, statement: object, **asked: object
    ) -> ConsoleUser | None:
        row = connection.execute(statement, asked).mappings().first()  # type: ignore[call-overload]
        if row is None:
            return None
        return ConsoleUser(**row, roles=self._roles(connection, row["id"]))

    def _roles(self, connection: Connection, user: int) -> dict[Role, tuple[str, ...]]:
        rows: Sequence[tuple[int, str, str]] = [
            (row.user_id, row.role, row.lanes) for row in connection.execute(_ROLES, {"id": user})
        ]
        return {Role(role): tuple(lanes.split(",")) for _, role, lanes in rows}
