"""An oracle for outcome events: triggers note each row that enters a settled state."""

import json
from typing import NamedTuple

from message.states import SETTLED
from tests.idempotency.making import World

_STATES = ", ".join(f"'{state}'" for state in sorted(SETTLED))
_TABLE = "CREATE TABLE audit (delivery_key TEXT, state TEXT, version BIGINT, lane TEXT)"
_VALUES = "VALUES (NEW.delivery_key, NEW.state, NEW.version, NEW.lane)"
_LITE = """
CREATE TRIGGER audit_{name} AFTER {event} ON deliveries WHEN NEW.state IN ({states}) {changed}
BEGIN INSERT INTO audit {values}; END"""
_PG_FUNCTION = f"""
CREATE FUNCTION audit_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO audit {_VALUES}; RETURN NULL;
END $$"""
_PG = """
CREATE TRIGGER audit_{name} AFTER {event} ON deliveries
   FOR EACH ROW WHEN (NEW.state IN ({states}) {changed})
EXECUTE FUNCTION audit_end()"""
_EVENTS = (("entered", "INSERT", ""), ("moved", "UPDATE", "AND OLD.state <> NEW.state"))


class End(NamedTuple):
    """One end of one delivery."""

    key: str
    state: str
    version: int


def watch(world: World) -> None:
    """Notes every end from now on. Open the ledger before."""
    world.rows_changed(_TABLE)
    if world.is_postgres:
        world.rows_changed(_PG_FUNCTION)
    for name, event, changed in _EVENTS:
        trigger = _PG if world.is_postgres else _LITE
        text = trigger.format(
            name=name, event=event, states=_STATES, changed=changed, values=_VALUES
        )
        world.rows_changed(text)


def ends(world: World, lane: str) -> list[End]:
    """Returns the ends of a lane that the triggers noted, sorted."""
    rows = world.rows("SELECT delivery_key, state, version, lane FROM audit")
    return sorted(End(*row[:3]) for row in rows if row[3] == lane)


def announced(world: World) -> list[End]:
    """Returns the ends in all batches, sorted."""
    rows = world.rows("SELECT ends FROM outcome_batches")
    return sorted(End(row[0], row[5], row[10]) for (text,) in rows for row in json.loads(text))
