"""The pre-filter may be down, flushed or failed over at any moment: slower, and nothing else."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from backends.redis.client import RedisAway, RedisStore
from backends.redis.outage_guard import PAUSE_S
from backends.settings import RedisSettings, Settings, SettingsError
from idempotency.payload_cipher import body_digest
from idempotency.prefilter import NoPrefilter
from idempotency.prefilter_redis import RedisPrefilter, open_prefilter

KEYS = [f"{n:032x}" for n in range(5)]
MARK = body_digest(b"body")


@pytest.fixture
def raw(redis_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def prefilter(redis_url: str) -> Iterator[RedisPrefilter]:
    opened = opened_for(redis_url, "ledger-a")
    yield opened
    opened.close()


def opened_for(url: str, identity: str) -> RedisPrefilter:
    opened = open_prefilter(Settings(redis=RedisSettings(url=url, timeout_ms=5_000)), identity)
    assert isinstance(opened, RedisPrefilter)
    return opened


def test_what_is_marked_is_known_and_nothing_else(prefilter: RedisPrefilter) -> None:
    prefilter.mark([(KEYS[0], MARK), (KEYS[2], body_digest(b"other"))])
    assert prefilter.lookup(KEYS[:3]) == [MARK, None, body_digest(b"other")]
    assert (prefilter.hits, prefilter.misses, prefilter.errors) == (2, 1, 0)


def test_an_empty_batch_asks_nothing(prefilter: RedisPrefilter) -> None:
    prefilter.mark([])
    assert (prefilter.lookup([]), prefilter.first([])) == ([], [])


def test_a_mark_is_forgotten_in_time(redis_url: str, raw: "redis.Redis") -> None:
    store = RedisStore(RedisSettings(url=redis_url, timeout_ms=5_000))
    prefilter = RedisPrefilter(store, "a", ttl_ms=60_000)
    prefilter.mark([(KEYS[0], MARK)])
    prefilter.first([KEYS[1]])
    lives: list[Any] = [raw.pttl(name) for name in raw.keys()]  # noqa: SIM118
    assert len(lives) == 2
    assert all(0 < ms <= 60_000 for ms in lives)
    prefilter.close()


def test_marks_of_another_ledger_never_hit(redis_url: str, prefilter: RedisPrefilter) -> None:
    other = opened_for(redis_url, "ledger-b")
    other.mark([(key, MARK) for key in KEYS])
    other.first(KEYS)
    assert prefilter.lookup(KEYS) == [None] * 5
    assert prefilter.first(KEYS) == [True] * 5
    other.close()


def test_the_first_to_name_a_key_is_told_so_once(prefilter: RedisPrefilter) -> None:
    assert prefilter.first(KEYS[:2]) == [True, True]
    assert prefilter.first(KEYS[1:3]) == [False, True]


def test_what_best_effort_named_is_not_taken_for_settled(prefilter: RedisPrefilter) -> None:
    prefilter.first(KEYS)
    assert prefilter.lookup(KEYS) == [None] * 5


def test_what_is_settled_is_not_taken_for_named(prefilter: RedisPrefilter) -> None:
    prefilter.mark([(key, MARK) for key in KEYS])
    assert prefilter.first(KEYS) == [True] * 5


def test_flushed_it_knows_nothing_and_goes_on(
    prefilter: RedisPrefilter, raw: "redis.Redis"
) -> None:
    prefilter.mark([(KEYS[0], MARK)])
    raw.flushdb()
    raw.script_flush()
    assert prefilter.lookup(KEYS[:1]) == [None]
    prefilter.mark([(KEYS[0], MARK)])
    assert prefilter.lookup(KEYS[:1]) == [MARK]
    assert prefilter.errors == 0


def test_foreign_values_are_no_marks_and_are_overwritten(
    prefilter: RedisPrefilter, raw: "redis.Redis"
) -> None:
    raw.hset(f"hongyan:ledger-a:{KEYS[0]}", "field", "value")
    raw.set(f"hongyan:ledger-a:{KEYS[1]}", "not a digest")
    assert prefilter.lookup(KEYS[:2]) == [None, None]
    prefilter.mark([(KEYS[0], MARK)])
    assert prefilter.lookup(KEYS[:1]) == [MARK]


def test_a_read_only_replica_after_a_failover_is_an_outage(
    prefilter: RedisPrefilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise redis.ReadOnlyError("You can't write against a read only replica.")

    store = prefilter._store
    monkeypatch.setattr(store, "_set", refuse)
    prefilter.mark([(KEYS[0], MARK)])
    assert prefilter.errors == 1


# -- outages --


class Flaky:
    """A store that fails while `away`, and counts how often it was asked."""

    def __init__(self) -> None:
        self.away = True
        self.asked = 0

    def get(self, keys: list[str]) -> list[bytes | None]:
        answer: list[bytes | None] = self._answer([None] * len(keys))
        return answer

    def set(self, _keys: object, _values: object, _ttl_ms: int) -> None:
        self._answer(None)

    def set_new(self, keys: list[str], _ttl_ms: int) -> list[bool]:
        answer: list[bool] = self._answer([True] * len(keys))
        return answer

    def _answer(self, value: Any) -> Any:
        self.asked += 1
        if self.away:
            raise RedisAway("connection refused")
        return value


class Hands:
    """A monotonic clock moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def flaky() -> tuple[RedisPrefilter, Flaky, Hands]:
    store, clock = Flaky(), Hands()
    return RedisPrefilter(store, "a", monotonic=clock), store, clock  # type: ignore[arg-type]


def test_away_it_knows_nothing_and_lets_everything_pass() -> None:
    prefilter, _store, clock = flaky()
    assert prefilter.lookup(KEYS) == [None] * 5
    clock.now += PAUSE_S
    assert prefilter.first(KEYS) == [True] * 5
    clock.now += PAUSE_S
    prefilter.mark([(KEYS[0], MARK)])
    assert (prefilter.errors, prefilter.hits, prefilter.misses) == (3, 0, 0)


def test_an_outage_costs_one_call_a_second() -> None:
    prefilter, store, clock = flaky()
    for _ in range(10):
        prefilter.lookup(KEYS)
    assert (store.asked, prefilter.errors, prefilter.skipped) == (1, 1, 9)
    clock.now += PAUSE_S
    for _ in range(10):
        prefilter.lookup(KEYS)
    assert (store.asked, prefilter.errors, prefilter.skipped) == (2, 2, 18)


def test_while_one_asks_whether_it_is_back_the_others_pass_by() -> None:
    prefilter, store, clock = flaky()
    prefilter.lookup(KEYS)
    clock.now += PAUSE_S
    store.away = False
    inner: list[object] = []
    answer = store._answer

    def asked_meanwhile(value: Any) -> Any:
        store._answer = answer  # type: ignore[method-assign]
        inner.append(prefilter.lookup(KEYS))
        return answer(value)

    store._answer = asked_meanwhile  # type: ignore[method-assign]
    prefilter.lookup(KEYS)
    assert (store.asked, prefilter.skipped, inner) == (2, 1, [[None] * 5])


def test_an_outage_is_logged_once_and_its_end_too() -> None:
    prefilter, store, clock = flaky()
    with capture_logs() as logs:
        for _ in range(3):
            prefilter.lookup(KEYS)
            clock.now += PAUSE_S
        store.away = False
        prefilter.lookup(KEYS)
        prefilter.lookup(KEYS)
    assert [entry["event"] for entry in logs] == ["prefilter.away", "prefilter.back"]


class Full(Flaky):
    """A store that answers questions and refuses writes, as a Redis without memory."""

    def get(self, keys: list[str]) -> list[bytes | None]:
        return [None] * len(keys)


def test_a_server_that_refuses_writes_alone_is_one_outage_and_is_still_asked() -> None:
    store, clock = Full(), Hands()
    prefilter = RedisPrefilter(store, "a", monotonic=clock)  # type: ignore[arg-type]
    with capture_logs() as logs:
        for _ in range(5):
            prefilter.lookup(KEYS)
            prefilter.mark([(KEYS[0], MARK)])
            clock.now += PAUSE_S
        store.away = False
        prefilter.mark([(KEYS[0], MARK)])
    assert [entry["event"] for entry in logs] == ["prefilter_marks.away", "prefilter_marks.back"]
    assert (prefilter.misses, prefilter.errors) == (5 * len(KEYS), 5)


@pytest.fixture
def mute() -> Iterator[int]:
    """A port that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_server_that_never_answers_costs_one_timeout(mute: int) -> None:
    settings = RedisSettings(url=f"redis://127.0.0.1:{mute}", timeout_ms=100)
    prefilter = open_prefilter(Settings(redis=settings), "a")
    begun = time.monotonic()
    for _ in range(5):
        assert prefilter.lookup(KEYS) == [None] * 5
    assert time.monotonic() - begun < 0.4
    prefilter.close()  # type: ignore[attr-defined]


def test_a_refused_connection_is_an_outage() -> None:
    prefilter = open_prefilter(Settings(redis=RedisSettings(url="redis://127.0.0.1:1")), "a")
    assert prefilter.first(KEYS) == [True] * 5
    prefilter.close()  # type: ignore[attr-defined]


def test_without_a_url_there_is_none() -> None:
    prefilter = open_prefilter(Settings(), "a")
    assert isinstance(prefilter, NoPrefilter)
    assert (prefilter.lookup(KEYS), prefilter.first(KEYS)) == ([None] * 5, [True] * 5)


def test_a_url_that_cannot_be_read_is_refused_without_showing_it() -> None:
    settings = Settings(redis=RedisSettings(url="http://user:s3cret@host"))
    with pytest.raises(SettingsError) as caught:
        open_prefilter(settings, "a")
    assert "s3cret" not in str(caught.value)
