"""API keys from their making to their end, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import structlog
from sqlalchemy import text

from idempotency.ledger import LedgerUnavailable
from producer.gateway.api_keys import (
    ApiKey,
    KeyRefused,
    KeyTerms,
    digest_of,
    is_secret_of,
    new_secret,
    split,
    terms_of,
)
from producer.gateway.key_ring import STALE_S, KeyRing, KeysStale
from producer.gateway.key_store import KeyMade, KeyStore
from tests.producer.gateway.conftest import OpenGateway

HOUR_MS = 3_600_000


def test_the_database_has_no_secret(
    gateway: OpenGateway, keys: KeyStore, make_key: Callable[..., KeyMade]
) -> None:
    token = make_key().token
    prefix, secret = split(token) or ("", "")
    with keys.database.begin() as connection:
        rows = [
            *connection.execute(text("SELECT * FROM api_keys")).all(),
            *connection.execute(text("SELECT * FROM api_key_secrets")).all(),
        ]
    assert secret not in repr(rows)
    assert prefix in repr(rows)
    assert secret not in repr(keys.shown())


def test_a_rotated_key_has_two_secrets_until_the_overlap_is_over(
    gateway: OpenGateway, keys: KeyStore, make_key: Callable[..., KeyMade]
) -> None:
    first = make_key()
    with keys.database.begin() as connection:
        second = keys.rotate(connection, "shop", overlap_ms=HOUR_MS)
    gateway.ring.look()
    assert gateway.send(first.token).status_code == 202
    assert gateway.send(second.token).status_code == 202
    with keys.database.begin() as connection:
        third = keys.rotate(connection, "shop", overlap_ms=0)
    gateway.ring.look()
    assert [gateway.send(one.token).status_code for one in (first, second)] == [401, 401]
    assert gateway.send(third.token).status_code == 202


def test_a_repeat_after_a_rotation_gets_the_first_answer(
    gateway: OpenGateway, keys: KeyStore, make_key: Callable[..., KeyMade]
) -> None:
    first = gateway.send(make_key().token, idempotency_key="k1")
    with keys.database.begin() as connection:
        second = keys.rotate(connection, "shop", overlap_ms=0)
    gateway.ring.look()
    assert gateway.send(second.token, idempotency_key="k1").content == first.content


def test_a_revoked_key_is_refused_by_the_ring_within_its_interval(
    gateway: OpenGateway, keys: KeyStore, token: str
) -> None:
    assert gateway.send(token).status_code == 202
    with keys.database.begin() as connection:
        keys.revoke(connection, "shop")
    for _ in range(200):
        if gateway.send(token).status_code == 401:
            break
        gateway.ring._stop.wait(0.05)
    assert gateway.send(token).status_code == 401
    with keys.database.begin() as connection, pytest.raises(KeyRefused, match="revoked"):
        keys.rotate(connection, "shop", overlap_ms=0)
    assert [(one.state, one.secrets) for one in keys.shown()] == [("revoked", [])]


def test_an_expired_key_is_refused_before_the_keys_are_read_again(
    gateway: OpenGateway, make_key: Callable[..., KeyMade]
) -> None:
    token = make_key(life_ms=HOUR_MS).token
    assert gateway.send(token).status_code == 202
    gateway.ring._now_ms = lambda: 10**14
    assert gateway.send(token).status_code == 401


def test_without_a_database_no_key_is_taken_for_longer_than_the_limit() -> None:
    made, now = new_secret(), [0.0]
    key = ApiKey("1", "shop", KeyTerms((), ("*",), 1, 1), made.digest, None)
    answers: list[Any] = [{made.prefix: key}]

    def load() -> Any:
        if not answers:
            raise LedgerUnavailable("away")
        return answers.pop()

    ring = KeyRing(load, lambda: 0, monotonic=lambda: now[0])
    ring.look()
    now[0] = STALE_S
    ring.look()
    assert ring.of_token(made.token) == (made.prefix, key)
    now[0] = STALE_S + 0.1
    with pytest.raises(KeysStale):
        ring.of_token(made.token)


def test_the_log_has_route_status_and_key_and_no_secret_or_receiver(
    gateway: OpenGateway, token: str
) -> None:
    with structlog.testing.capture_logs() as logs:
        gateway.send(token, idempotency_key="secret-of-the-order")
        gateway.get(token, "/v1/notifications/the-id", biz_id="the-biz")
    said = repr(logs)
    assert [one["route"] for one in logs if one["event"] == "request"] == [
        "POST /v1/notifications",
        "GET /v1/notifications/{message_id}",
    ]
    assert "'key': 'shop'" in said
    for private in (*(split(token) or ())[1:], "secret-of", "r1", "hello", "the-id", "the-biz"):
        assert private not in said


def test_a_digest_depends_on_prefix_and_secret() -> None:
    made = new_secret()
    prefix, secret = split(made.token) or ("", "")
    assert is_secret_of(prefix, secret, made.digest)
    assert not is_secret_of("0" * 12, secret, made.digest)
    assert digest_of(prefix, secret[::-1]) != made.digest


@pytest.mark.parametrize(
    ("scopes", "lanes", "rate"),
    [([], [], 1.0), (["write"], [], 1.0), (["send"], ["smss.*"], 1.0), (["send"], [], 0.0)],
)
def test_terms_that_mean_nothing_are_refused(
    scopes: list[str], lanes: list[str], rate: float
) -> None:
    with pytest.raises(KeyRefused):
        terms_of(scopes, lanes, rate, 1)


@pytest.mark.parametrize("lanes", [[""], [" "], ["sms.*", ""]])
def test_a_blank_lane_does_not_mean_every_lane(lanes: list[str]) -> None:
    with pytest.raises(KeyRefused, match="a lane is blank") as refused:
        terms_of(["send"], lanes, 1.0, 1)
    assert refused.value.code == "bad_lanes"
    assert terms_of(["send"], [], 1.0, 1).lanes == ("*",)


def test_a_name_is_taken_once(gateway: OpenGateway, make_key: Callable[..., KeyMade]) -> None:
    make_key()
    with pytest.raises(KeyRefused, match="already"):
        make_key()
