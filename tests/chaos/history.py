"""What the ledger's rows went through, noted by a trigger of ours: at the end of a run nothing is in doubt
any more, and who was, when and because of whom, must be known all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.harness.books import Books


class Move(NamedTuple):
    """One row that entered or left a state in which something is owed; times are the database's, epoch
    milliseconds. Claims and what ends well at once leave none."""

    at_ms: int
    delivery_key: str
    source: str
    """Empty: the row was entered so."""
    state: str
    reason: str | None
    owner: str | None
    since_ms: int
    """When it had entered `source`."""


_TABLE: Final = """
CREATE TABLE chaos_moves (
    seq BIGINT GENERATED ALWAYS AS IDENTITY, at_ms BIGINT, delivery_key TEXT, source TEXT, state TEXT,
    reason TEXT, owner TEXT, since_ms BIGINT)"""
_CHANGED: Final = """
CREATE FUNCTION chaos_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_moves (at_ms, delivery_key, source, state, reason, owner, since_ms)
    VALUES (hongyan_now(), NEW.delivery_key, OLD.state, NEW.state, NEW.reason, NEW.owner,
            OLD.updated_at);
    RETURN NULL;
END $$"""
_ENTERED: Final = """
CREATE FUNCTION chaos_entered() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_moves (at_ms, delivery_key, source, state, reason, owner, since_ms)
    VALUES (hongyan_now(), NEW.delivery_key, '', NEW.state, NEW.reason, NEW.owner, NEW.created_at);
    RETURN NULL;
END $$"""
_ON_CHANGE: Final = """
CREATE TRIGGER chaos_changed AFTER UPDATE OF state ON deliveries FOR EACH ROW
  WHEN (OLD.state <> NEW.state AND NOT (OLD.state = 'IN_FLIGHT' AND NEW.state IN ('SENT', 'REJECTED')))
EXECUTE FUNCTION chaos_changed()"""
_ON_ENTRY: Final = """
CREATE TRIGGER chaos_entered AFTER INSERT ON deliveries FOR EACH ROW
  WHEN (NEW.state = 'RETRY') EXECUTE FUNCTION chaos_entered()"""


def watch(books: Books) -> None:
    """Note every move from now on."""
    for statement in (_TABLE, _CHANGED, _ENTERED, _ON_CHANGE, _ON_ENTRY):
        books.query(statement)


def moves(books: Books) -> list[Move]:
    """Every move noted, in order."""
    return [
        Move(*row)
        for row in books.query(f"SELECT {', '.join(Move._fields)} FROM chaos_moves ORDER BY seq")
    ]


def keep(moves: Iterable[Move], path: Path) -> None:
    """One JSON line each: what a person looks through when a verdict is bad."""
    with path.open("w") as file:
        file.writelines(json.dumps(move._asdict()) + "\n" for move in moves)
