"""URLs of a business's database, and an engine's waits for it."""

import threading
import time
from typing import Any

import psycopg
import pytest
from sqlalchemy import exc as sa
from sqlalchemy.engine import make_url

from hongyan_client.outbox.engine import OutboxWaits, outbox_engine, outbox_url
from hongyan_client.outbox.errors import OutboxAway
from hongyan_client.outbox.postgres_connection import AnswerLimitedConnection
from hongyan_client.outbox.store import OutboxStore
from tests.harness.proxy import Proxy
from tests.hongyan_client.outbox.places import LEASE_MS, OutboxPlace


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Keeps what the driver is called with, which connects to nothing."""
    found: dict[str, Any] = {}

    def connect(**named: Any) -> None:
        found.update(named)
        raise psycopg.OperationalError

    monkeypatch.setattr(AnswerLimitedConnection, "connect", connect)
    return found


def test_an_at_in_a_password_is_refused_since_its_end_would_be_the_host() -> None:
    with pytest.raises(ValueError, match="%40") as caught:
        outbox_url("mysql://u:t0p@s3cret@h:5/d")
    assert "s3cret" not in str(caught.value)
    assert outbox_url("mysql://u:t0p%40s3cret@h:5/d").password == "t0p@s3cret"


def test_several_hosts_reach_the_driver_as_sqlalchemy_reads_them(asked: dict[str, Any]) -> None:
    url = "postgresql://u:p@/d?host=127.0.0.1:5&host=127.0.0.2:6&connect_timeout=9"
    with pytest.raises(sa.OperationalError):
        outbox_engine(url).connect()
    assert (asked["host"], asked["port"]) == ("127.0.0.1,127.0.0.2", "5,6")
    assert (asked["connect_timeout"], asked["application_name"]) == ("9", "hongyan-relay")


def test_no_statement_is_prepared_since_pgbouncer_changes_the_servers_connection(
    asked: dict[str, Any],
) -> None:
    with pytest.raises(sa.OperationalError):
        outbox_engine("postgresql://u:p@127.0.0.1:5/d").connect()
    assert asked["prepare_threshold"] is None
    assert (asked["keepalives"], asked["tcp_user_timeout"]) == (1, 6_000)


def test_a_frozen_server_is_away_after_the_longest_wait(postgres_place: OutboxPlace) -> None:
    """Its connection stays open, and its kernel acknowledges every packet."""
    message_id = postgres_place.add()
    url = make_url(postgres_place.url)
    awake = threading.Event()

    def frozen(_answer: bytes) -> bool:
        awake.wait(30)
        return False

    with Proxy(str(url.host), url.port or 5432) as proxy:
        through = url.set(host="127.0.0.1", port=proxy.port)
        engine = outbox_engine(through, waits=OutboxWaits(1.0, 1.0, 1.0))
        store = OutboxStore(engine, statement_s=1.0)
        assert store.claim_due("a", LEASE_MS, 0).seen == 0
        proxy.cut_replies(1, frozen)
        began = time.monotonic()
        with pytest.raises(OutboxAway):
            store.claim_due("a", LEASE_MS, 10)
        assert time.monotonic() - began < 15
        awake.set()
        assert [row.message_id for row in store.claim_due("a", LEASE_MS, 10).rows] == [message_id]
        engine.dispose()
