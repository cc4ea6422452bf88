"""A right that a relay needs and lacks is known at its start."""

import threading

import pytest
from sqlalchemy import text

from backends.settings import RelaySettings, Settings, TraceSettings
from hongyan_client.outbox.errors import OutboxForbidden
from hongyan_client.outbox.store import OutboxStore
from producer.relay.process import run_relay
from producer.relay.rights import try_rights
from tests.hongyan_client.outbox.places import OutboxPlace


def take_away(place: OutboxPlace, store: OutboxStore, right: str) -> None:
    with store.engine.begin() as connection:
        role = connection.execute(text("SELECT current_user")).scalar_one()
    with place.engine.begin() as connection:
        connection.execute(text(f"REVOKE {right} FROM {role}"))


def test_trying_the_rights_changes_nothing(place: OutboxPlace) -> None:
    message_id = place.add()
    before = place.row(message_id)
    try_rights(place.store, 0)
    assert place.row(message_id) == before
    assert place.rows.untold_alerts() == []


@pytest.mark.parametrize(
    "right",
    [
        "UPDATE ON hongyan_outbox",
        "DELETE ON hongyan_outbox",
        "INSERT ON hongyan_outbox_alerts",
        "USAGE ON SEQUENCE hongyan_outbox_alerts_id_seq",
    ],
)
def test_each_right_of_a_mark_is_tried(
    postgres_place: OutboxPlace, plain_store: OutboxStore, right: str
) -> None:
    try_rights(plain_store, 0)
    take_away(postgres_place, plain_store, right)
    with pytest.raises(OutboxForbidden, match=r"permission denied.*docs/outbox\.md"):
        try_rights(plain_store, 0)


def test_rows_that_stay_need_no_right_to_delete(
    postgres_place: OutboxPlace, plain_store: OutboxStore
) -> None:
    take_away(postgres_place, plain_store, "DELETE ON hongyan_outbox")
    try_rights(plain_store, 24)


def test_a_relay_without_a_right_does_not_start(
    postgres_place: OutboxPlace, plain_store: OutboxStore
) -> None:
    take_away(postgres_place, plain_store, "DELETE ON hongyan_outbox")
    url = plain_store.engine.url.render_as_string(hide_password=False)
    relay = RelaySettings(
        outbox_url=url, table=plain_store.name, keep_hours=0, health_address="127.0.0.1:0"
    )
    settings = Settings(relay=relay, trace=TraceSettings(kafka=False, database=False))
    stop = threading.Event()
    stop.set()  # one that starts all the same ends at once
    with pytest.raises(OutboxForbidden):
        run_relay(settings, stop)
