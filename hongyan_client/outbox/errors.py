"""Errors of the outbox.

    OutboxTrouble
     ├─ OutboxAway       the database does not answer, or refuses for now: the same call may work later
     ├─ OutboxMissing    the tables are not there; the business's migration makes them
     ├─ OutboxForbidden  the database's user lacks a right; a person grants it
     └─ OutboxRefused    a column cannot hold the value, such as Chinese text in a table of latin1

An envelope that breaks its rules is `message.envelope.EnvelopeError`. Any other error of a driver is a bug
and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc as sa


class OutboxTrouble(Exception):
    """Base of the ladder."""


class OutboxAway(OutboxTrouble):
    """The database cannot be reached, is busy, or ended the transaction to resolve a conflict."""


class OutboxMissing(OutboxTrouble):
    """The outbox's tables do not exist."""


class OutboxForbidden(OutboxTrouble):
    """The database's user lacks a right on the outbox's tables."""


class OutboxRefused(OutboxTrouble):
    """The database cannot store a value."""


_MISSING_STATE, _FORBIDDEN_STATE = "42P01", "42501"  # PostgreSQL
_MISSING_NUMBER, _FORBIDDEN_NUMBERS = 1146, (1044, 1142, 1143)  # MySQL: of a schema, table, column


@contextmanager
def outbox_errors(name: str) -> Iterator[None]:
    """Maps errors of SQLAlchemy and its drivers; `name` is the table's."""
    try:
        yield
    except sa.TimeoutError as exc:
        raise OutboxAway("every connection of the pool is in use") from exc
    except sa.DBAPIError as exc:
        if _is_missing(exc):
            raise OutboxMissing(
                f"there is no table {name}: run the business's migration that calls"
                " hongyan_client.outbox.migration.upgrade"
            ) from exc
        if _is_forbidden(exc):
            raise OutboxForbidden(
                f"the database's user lacks a right ({_first_line(exc)}): docs/outbox.md names the"
                " rights of a relay"
            ) from exc
        if isinstance(exc, sa.DataError):
            raise OutboxRefused(
                f"the database cannot store a value ({_first_line(exc)}): docs/outbox.md names the"
                " character set of the tables"
            ) from exc
        if not _is_away(exc):
            raise
        raise OutboxAway(_first_line(exc)) from exc


def _is_missing(exc: sa.DBAPIError) -> bool:
    if getattr(exc.orig, "sqlstate", None) == _MISSING_STATE:
        return True
    return "no such table" in str(exc.orig) or _number(exc) == _MISSING_NUMBER


def _is_forbidden(exc: sa.DBAPIError) -> bool:
    state = getattr(exc.orig, "sqlstate", None)
    return state == _FORBIDDEN_STATE or _number(exc) in _FORBIDDEN_NUMBERS


def _number(exc: sa.DBAPIError) -> object:
    """Returns the error's number of MySQL's drivers."""
    return next(iter(exc.orig.args), None) if exc.orig is not None else None


def _is_away(exc: sa.DBAPIError) -> bool:
    away = exc.connection_invalidated or isinstance(exc, sa.OperationalError | sa.InterfaceError)
    return away or isinstance(exc, sa.InternalError)


def _first_line(exc: sa.DBAPIError) -> str:
    return str(exc.orig).strip().partition("\n")[0] or type(exc.orig).__name__
