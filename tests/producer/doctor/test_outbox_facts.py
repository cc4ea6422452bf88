"""The settings of real databases, as the business's sessions get them; reading changes nothing."""

from __future__ import annotations

import pytest

from backends.settings import RelaySettings, Settings
from producer.doctor.outbox_facts import read_outbox
from producer.relay.opening import OutboxUnread
from tests.hongyan_client.outbox.places import OutboxPlace

WANTED = {
    "postgresql": {"synchronous_commit", "fsync", "full_page_writes"},
    "sqlite": {"journal_mode"},
    "mariadb": {
        *("innodb_flush_log_at_trx_commit", "innodb_lock_wait_timeout", "log_bin", "sync_binlog"),
        *("binlog_format", "max_allowed_packet", "isolation"),
    },
}


def test_each_database_tells_its_settings_its_version_and_its_time(place: OutboxPlace) -> None:
    relay = RelaySettings(outbox_url=place.url, lease_s=45)
    facts, clock = read_outbox(Settings(relay=relay))
    assert set(facts.settings) == WANTED[facts.kind]
    assert all(facts.settings.values())
    assert facts.version[0].isdigit()
    assert facts.lease_s == 45
    assert clock.name == "outbox database"
    assert clock.ahead_ms is not None
    assert abs(clock.ahead_ms) < 60_000
    if facts.kind == "mariadb":
        assert facts.number("max_allowed_packet") > 1_000
        assert facts.settings["isolation"].replace("-", " ").isupper()


def test_a_database_that_is_away_says_so_without_its_password() -> None:
    relay = RelaySettings(outbox_url="postgresql://u:secret@127.0.0.1:1/shop")
    with pytest.raises(OutboxUnread) as raised:
        read_outbox(Settings(relay=relay))
    assert "refused" in str(raised.value)
    assert "secret" not in str(raised.value)
