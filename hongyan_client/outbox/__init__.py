"""The outbox: notifications in the business's own transaction (docs/outbox.md). Needs SQLAlchemy 2.

    clock             the database's time in SQL
    tables            rows, alerts and relays; partitions: by day, on PostgreSQL
    entry             the row of one notification
    outbox            `Outbox.add` and `Outbox.recall`; key_followers: what a recall wakes
    statements, store claims and marks
    publication       from a claimed batch to how each row ended
    commit_publisher  publishes after the commit, in the business's process
    relay_rows        the relays' signs of life, the backlog, alerts
    operator_orders   a person's orders: release, recall
    migration         for the business's Alembic
    engine, errors    an engine of one's own; the errors; postgres_connection: limits the wait for answers

A business process imports `Outbox` and, if it publishes itself, `CommitPublisher`.
"""

from hongyan_client.outbox.entry import RetryTerms
from hongyan_client.outbox.outbox import Outbox, QueuedNotification
from hongyan_client.outbox.tables import OutboxTables, outbox_tables

__all__ = ["Outbox", "OutboxTables", "QueuedNotification", "RetryTerms", "outbox_tables"]
