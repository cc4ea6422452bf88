"""Opens the business's database for one request. The console keeps no connection to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from admin.access import Person, Role
from admin.parts import ConsoleParts
from hongyan_client.outbox.engine import OutboxWaits
from hongyan_client.outbox.operator_orders import OutboxOperator, OutboxRow
from hongyan_client.outbox.relay_rows import OutboxBacklog, RelayHeartbeat, RelayRows
from message.vocabulary import lane_of_topic
from producer.relay.opening import outbox_for_a_look

WAITS: Final = OutboxWaits(busy_s=2.0, statement_s=2.0, answer_s=2.0)
"""A person waits, and the page takes several statements."""
_RELAYS: Final = 100


class ShownOutbox(NamedTuple):
    """The outbox as a whole."""

    backlog: OutboxBacklog
    counts: dict[str, int]
    relays: Sequence[RelayHeartbeat]
    now: int
    """The database's time."""


class OpenedOutboxPage(NamedTuple):
    """The outbox of one request."""

    operator: OutboxOperator
    rows: RelayRows

    def whole(self) -> ShownOutbox:
        """Measures the backlog. Raises OutboxTrouble."""
        relays = self.rows.heartbeats()[:_RELAYS]
        return ShownOutbox(self.rows.backlog(), self.operator.counts(), relays, self.rows.now_ms())


@contextmanager
def opened_outbox(parts: ConsoleParts) -> Iterator[OpenedOutboxPage]:
    """Yields the outbox and closes it afterwards. Raises OutboxUnread, for its errors in the body, too."""
    with outbox_for_a_look(parts.settings, WAITS) as opened:
        yield OpenedOutboxPage(OutboxOperator(opened.store, opened.tables), opened.rows)


def outbox_lane(parts: ConsoleParts, row: OutboxRow) -> str:
    """Returns the lane of the row's topic; empty without one."""
    lane = lane_of_topic(row.topic, parts.settings.kafka.topic_prefix)
    return lane.name if lane is not None else ""


def may_outbox(parts: ConsoleParts, person: Person, role: Role, row: OutboxRow) -> bool:
    """Returns whether the person has the role for the row; one without a lane needs it for all lanes."""
    lane = outbox_lane(parts, row)
    return person.may(role, lane) if lane else person.everywhere(role)
