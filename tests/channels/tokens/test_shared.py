"""Tokens of the fleet: one asks, all have it; on Redis, PostgreSQL and SQLite, over real processes."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import structlog
from sqlalchemy import create_engine, text

from backends.redis.token_cache import (
    Busy,
    CacheAway,
    Leased,
    RedisTokenCache,
    StoredToken,
    TokenCache,
)
from backends.settings import DatabaseSettings, RedisSettings, Settings
from backends.sql import database as sql
from backends.sql.database import Database, database_url
from backends.sql.token_cache import SqlTokenCache
from channels.channel import Account, Failure, LoginRefused, Phase, Token, TokenRefused
from channels.tokens.contract import LoginUnavailable, TokenUnavailable
from channels.tokens.fetch import REFUSED_S
from channels.tokens.seal import TokenCipher, digest_of
from channels.tokens.shared import AHEAD_SHARE, FAILED_S, WAIT_S, SharedTokens, open_tokens
from simulator import Faults
from tests.channels.calls import account
from tests.harness.databases import upgraded
from tests.harness.simulators import spawn
from tests.services import Services

PROCESSES = 8
THREADS = 4
LEASE_MS = 4_000
STORES = ["redis", "postgresql", "sqlite"]


class Clock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Provider:
    """A sender and a token source in one: gives token-1, token-2, … and counts."""

    def __init__(self, *, lives_s: float = 100.0) -> None:
        self.lives_s = lives_s
        self.asked: list[str] = []
        self.refuses = ""
        self.same = False
        self.gave = threading.Event()
        self.reads: Callable[[], Token] | None = None
        self.failure: Failure | None = None
        self.login = ""
        self.limits: list[float] = []

    def request(self, account: Account, stale: str) -> httpx.Request:
        self.asked.append(stale)
        return httpx.Request("GET", "https://provider.example/token?secret=s3cret")

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        self.limits.append(request.extensions["timeout"]["total"])
        return self.failure or httpx.Response(200)

    def read(self, answer: httpx.Response) -> Token:
        self.gave.set()
        if self.login:
            raise LoginRefused(self.login)
        if self.refuses:
            raise TokenRefused(self.refuses)
        if self.reads is not None:
            return self.reads()
        return Token(f"token-{1 if self.same else len(self.asked)}", self.lives_s)


class MemoryCache:
    """The stores' rules in a dictionary, on the test's clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.kept: tuple[bytes, str, float, float] | None = None
        self.lease = ("", 0.0)
        self.away = False

    def take(
        self, name: str, stale: str, fresh_ms: int, lease_ms: int
    ) -> StoredToken | Leased | Busy:
        if self.away:
            raise CacheAway("memory: away")
        now = self.clock()
        if self.kept is not None and self.kept[3] > now:
            sealed, digest, at, until = self.kept
            if digest != stale or (now - at) * 1_000 < fresh_ms:
                return StoredToken(
                    sealed, digest, int((until - now) * 1_000), int((now - at) * 1_000)
                )
        if self.lease[1] > now:
            return Busy(int((self.lease[1] - now) * 1_000))
        self.lease = ("mine", now + lease_ms / 1_000)
        return Leased("mine")

    def put(self, name: str, fence: str, token: StoredToken) -> bool:
        if self.lease[0] != fence:
            return False
        now = self.clock()
        self.kept = (token.sealed, token.digest, now, now + token.left_ms / 1_000)
        self.lease = ("", 0.0)
        return True

    def give_up(self, name: str, fence: str) -> None:
        self.lease = ("", 0.0)

    def close(self) -> None:
        """Nothing is open."""


class Shop:
    """One process's tokens over a memory store, on a clock that stands still."""

    def __init__(self, **provider: Any) -> None:
        self.clock = Clock()
        self.cache = MemoryCache(self.clock)
        self.provider = Provider(**provider)
        self.account = account(token="s3cret")
        self.tokens = self.process()

    def process(self) -> SharedTokens:
        return SharedTokens(
            self.provider,
            [self.cache],
            monotonic=self.clock,
            sleep=self.clock.sleep,
            luck=lambda: 1.0,
        )

    def get(self) -> str:
        return self.tokens.get(self.account, self.provider)

    def renew(self, stale: str) -> str:
        return self.tokens.renew(self.account, self.provider, stale)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_token_is_held_until_it_expires(shop: Shop) -> None:
    assert [shop.get(), shop.get()] == ["token-1", "token-1"]
    shop.clock.now += 101
    assert shop.get() == "token-2"
    assert shop.provider.asked == ["", ""]


def test_a_refused_token_is_renewed_once_for_all_who_held_it(shop: Shop) -> None:
    shop.get()
    shop.clock.now += 5
    assert [shop.renew("token-1"), shop.renew("token-1"), shop.get()] == ["token-2"] * 3
    assert len(shop.provider.asked) == 2


def test_another_processs_token_is_used_without_asking(shop: Shop) -> None:
    shop.get()
    other = shop.process()
    assert other.get(shop.account, shop.provider) == "token-1"
    shop.clock.now += 5
    assert other.renew(shop.account, shop.provider, "token-1") == "token-2"
    assert shop.renew("token-1") == "token-2"
    assert len(shop.provider.asked) == 2


def test_a_token_refused_as_soon_as_it_was_given_is_not_asked_for_at_once(shop: Shop) -> None:
    shop.provider.same = True
    shop.get()
    began = shop.clock.now
    assert shop.renew("token-1") == "token-1"
    assert shop.clock.now - began >= 1.0
    assert len(shop.provider.asked) == 2


def test_a_provider_that_refuses_is_told_in_one_sentence_and_asked_again_later(shop: Shop) -> None:
    shop.provider.refuses = "40001 invalid credential"
    sentence = "account main: webhook gave no token: 40001 invalid credential"
    for _ in range(3):
        with pytest.raises(TokenUnavailable, match=f"^{sentence}$"):
            shop.get()
    assert len(shop.provider.asked) == 1
    shop.clock.now += FAILED_S
    shop.provider.refuses = ""
    assert shop.get() == "token-2"


def test_a_refused_login_is_told_to_the_whole_fleet_and_asked_again_after_a_minute(
    shop: Shop,
) -> None:
    shop.provider.login = "40001 bad secret"
    others = [shop.process() for _ in range(5)]
    for tokens in (shop.tokens, *others) * 3:
        with pytest.raises(LoginUnavailable, match="refused the login: 40001 bad secret; check"):
            tokens.get(shop.account, shop.provider)
        assert tokens.refused_logins() == ["main"]
    assert len(shop.provider.asked) == 1
    shop.clock.now += REFUSED_S - 1
    with pytest.raises(LoginUnavailable) as found:
        shop.get()
    assert found.value.left_s <= 1.0
    assert len(shop.provider.asked) == 1
    shop.clock.now += 1
    shop.provider.login = ""
    assert shop.get() == "token-2"
    assert shop.tokens.refused_logins() == []
    assert others[0].get(shop.account, shop.provider) == "token-2"


def test_with_another_secret_a_refused_login_is_tried_at_once(shop: Shop) -> None:
    shop.provider.login = "40001 bad secret"
    with pytest.raises(LoginUnavailable):
        shop.get()
    shop.provider.login = ""
    mended = account(token="mended")
    assert shop.tokens.get(mended, shop.provider) == "token-2"
    assert shop.tokens.refused_logins() == []


def test_lanes_of_one_account_share_its_token_and_its_failure(shop: Shop) -> None:
    """Each lane makes the account anew from the same table."""
    lanes = [account(token="s3cret") for _ in range(2)]
    shop.provider.refuses = "-1 system busy"
    for lane in lanes * 2:
        with pytest.raises(TokenUnavailable, match="system busy"):
            shop.tokens.get(lane, shop.provider)
    assert len(shop.provider.asked) == 1
    shop.provider.refuses = ""
    shop.clock.now += FAILED_S
    shop.tokens.get(lanes[0], shop.provider)
    shop.cache.away = True
    assert [shop.tokens.get(lane, shop.provider) for lane in lanes * 2] == ["token-2"] * 4


def test_lanes_that_differ_about_a_secret_keep_the_token_of_each(shop: Shop) -> None:
    before, after = shop.account, account(token="another")
    tokens = [shop.tokens.get(one, shop.provider) for one in (before, after)]
    assert tokens == ["token-1", "token-2"]
    shop.cache.away = True
    assert [shop.tokens.get(one, shop.provider) for one in (before, after) * 2] == tokens * 2
    assert list(shop.tokens.lives()) == ["main"]


def test_a_process_keeps_two_logins_of_an_account_at_most(shop: Shop) -> None:
    for secret in ("first", "second", "third"):
        shop.tokens.get(account(token=secret), shop.provider)
    shop.cache.away = True
    shop.tokens.get(account(token="second"), shop.provider)
    with pytest.raises(TokenUnavailable, match="no store of tokens"):
        shop.tokens.get(account(token="first"), shop.provider)


def test_a_token_that_is_still_good_is_used_while_the_login_is_refused(shop: Shop) -> None:
    assert shop.get() == "token-1"
    shop.provider.login = "40001 bad secret"
    shop.clock.now += shop.provider.lives_s * (1 - AHEAD_SHARE) + 1
    shop.provider.gave.clear()
    assert shop.get() == "token-1"
    assert shop.provider.gave.wait(10)
    assert shop.get() == "token-1"


def test_no_wait_for_a_token_is_longer_than_it_was_promised(shop: Shop) -> None:
    """Whoever waits for another thread first has less left for the provider's own answer."""
    shop.cache.lease = ("another's", shop.clock.now + WAIT_S - 1.0)
    shop.get()
    assert shop.provider.limits == [pytest.approx(1.0, abs=0.1)]
    shop = Shop()
    shop.cache.lease = ("another's", shop.clock.now + WAIT_S - 0.1)
    with pytest.raises(TokenUnavailable):
        shop.get()
    assert shop.provider.asked == []


def test_a_provider_that_does_not_answer_gives_no_token(shop: Shop) -> None:
    shop.provider.failure = Failure(Phase.WRITTEN, "timeout", "secret=s3cret")
    with pytest.raises(TokenUnavailable, match=r"gave no token: no answer \(timeout\)$"):
        shop.get()


def test_whatever_breaks_is_told_without_its_text(shop: Shop) -> None:
    def reads() -> Token:
        raise ValueError("secret=s3cret")

    shop.provider.reads = reads
    with pytest.raises(TokenUnavailable, match=r"the token request broke: ValueError$"):
        shop.get()


def test_a_token_is_refreshed_ahead_of_its_end_while_the_old_one_is_used(shop: Shop) -> None:
    shop.get()
    shop.provider.gave.clear()
    shop.clock.now += 100 * (1 - AHEAD_SHARE) + 1
    assert shop.get() == "token-1"
    assert shop.provider.gave.wait(10)
    wait_for(lambda: shop.get() == "token-2")
    assert len(shop.provider.asked) == 2


def test_a_provider_that_gives_the_same_token_again_is_asked_nearer_to_its_end(shop: Shop) -> None:
    shop.provider.same = True
    shop.get()
    shop.clock.now += 91
    shop.provider.lives_s = 9.0
    shop.provider.gave.clear()
    shop.get()
    assert shop.provider.gave.wait(10)
    settled(shop)
    assert shop.get() == "token-1"
    assert len(shop.provider.asked) == 2
    shop.clock.now += 8.5
    shop.provider.gave.clear()
    shop.get()
    assert shop.provider.gave.wait(10)


def test_what_cannot_be_refreshed_ahead_is_used_to_its_end(shop: Shop) -> None:
    shop.get()
    shop.provider.refuses = "-1 system busy"
    shop.provider.gave.clear()
    shop.clock.now += 91
    shop.get()
    assert shop.provider.gave.wait(10)
    settled(shop)
    assert shop.get() == "token-1"


def test_a_refresh_without_a_thread_is_tried_later_and_holds_nobody(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    shop.get()
    shop.clock.now += 100 * (1 - AHEAD_SHARE) + 1
    with monkeypatch.context() as patch, structlog.testing.capture_logs() as entries:
        patch.setattr(threading.Thread, "start", start)
        assert [shop.get() for _ in range(3)] == ["token-1"] * 3
    assert [(entry["event"], entry["reason"]) for entry in entries] == [
        ("access_token_not_refreshed", "can't start new thread")
    ]
    shop.clock.now += 8.5
    shop.provider.gave.clear()
    assert shop.get() == "token-1"
    assert shop.provider.gave.wait(10)
    wait_for(lambda: shop.get() == "token-2")


def test_one_process_refreshes_ahead_and_the_others_take_what_it_was_given(shop: Shop) -> None:
    others = [shop.process() for _ in range(3)]
    for each in (shop.tokens, *others):
        each.get(shop.account, shop.provider)
    shop.clock.now += 91
    for each in (shop.tokens, *others):
        each.get(shop.account, shop.provider)
        wait_for(lambda each=each: each.get(shop.account, shop.provider) == "token-2")  # type: ignore[misc]
    assert len(shop.provider.asked) == 2


def test_who_lost_the_lease_takes_the_later_token(shop: Shop) -> None:
    def reads() -> Token:  # we slept; somebody else asked after us
        seal = TokenCipher(shop.account)
        digest, now = digest_of("theirs"), shop.clock.now
        shop.cache.kept = (seal.close("theirs"), digest, now, now + 50)
        shop.cache.lease = ("", 0.0)
        return Token("ours", 50.0)

    shop.provider.reads = reads
    assert shop.get() == "theirs"


def test_a_damaged_token_is_as_good_as_none(shop: Shop) -> None:
    shop.cache.kept = (b"damaged" * 9, "digest", shop.clock.now, shop.clock.now + 50)
    assert shop.get() == "token-1"


def test_without_any_store_there_is_no_token(shop: Shop) -> None:
    shop.cache.away = True
    with pytest.raises(
        TokenUnavailable, match=r"no store of tokens can be reached \(memory: away\)"
    ):
        shop.get()


def test_a_process_that_asks_for_ever_does_not_hold_the_others_up(shop: Shop) -> None:
    shop.cache.lease = ("another's", shop.clock.now + 1_000)
    with pytest.raises(TokenUnavailable, match="no other token came in time"):
        shop.get()
    assert shop.provider.asked == []


def test_no_token_and_no_secret_is_logged(shop: Shop) -> None:
    with structlog.testing.capture_logs() as entries:
        shop.get()
    assert [entry["event"] for entry in entries] == ["access_token_given"]
    assert "token-1" not in str(entries)
    assert "s3cret" not in str(entries)


class Signer:
    """A source whose tokens the account's own key signs."""

    def __init__(self) -> None:
        self.signed: list[str] = []
        self.login = ""

    def request(self, account: Account, stale: str) -> Token:
        self.signed.append(stale)
        if self.login:
            raise LoginRefused(self.login)
        return Token(f"signed-{len(self.signed)}", 100.0)

    def read(self, answer: httpx.Response) -> Token:
        raise AssertionError("nobody is asked")


def test_a_token_that_the_accounts_own_key_signs_is_the_fleets_and_asked_of_nobody(
    shop: Shop,
) -> None:
    signer, other = Signer(), shop.process()
    assert shop.tokens.get(shop.account, signer) == "signed-1"
    assert other.get(shop.account, signer) == "signed-1"
    shop.clock.now += 5
    assert other.renew(shop.account, signer, "signed-1") == "signed-2"
    assert shop.tokens.renew(shop.account, signer, "signed-1") == "signed-2"
    assert signer.signed == ["", "signed-1"]
    assert shop.provider.limits == []


def test_a_token_that_must_not_be_signed_anew_is_a_refused_login(shop: Shop) -> None:
    signer = Signer()
    shop.tokens.get(shop.account, signer)
    signer.login = "check the clock"
    shop.clock.now += 5
    with pytest.raises(LoginUnavailable, match="check the clock"):
        shop.tokens.renew(shop.account, signer, "signed-1")
    with pytest.raises(LoginUnavailable, match="check the clock"):
        shop.process().renew(shop.account, signer, "signed-1")
    assert len(signer.signed) == 2


def test_other_credentials_of_the_same_account_have_other_tokens() -> None:
    old, new = TokenCipher(account(token="old")), TokenCipher(account(token="new"))
    assert old.name != new.name
    assert new.open(old.close("token")) is None
    assert TokenCipher(account(token="old")).open(old.close("token")) == "token"
    assert b"token" not in old.close("token")


def wait_for(met: Callable[[], bool]) -> None:
    """Until another thread has done it; the deadline is for a test that fails."""
    waiting = threading.Event()
    for _ in range(1_000):
        if met():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come to pass")


def settled(shop: Shop) -> None:
    """Wait until nobody is refreshing."""
    ((entry,),) = shop.tokens._entries.values()
    with entry.lock:
        return


# ---- the stores ------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        marks = {"sqlite": ()}
        params = [
            pytest.param(name, marks=marks.get(name, (pytest.mark.stack,))) for name in STORES
        ]
        metafunc.parametrize("store", params, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, services: Services, sqlite_database: str) -> Settings:
    """Settings of a fleet whose first store is this one; its database is migrated."""
    name: str = request.param
    database = sqlite_database
    url = ""
    if name == "postgresql":
        database = request.getfixturevalue("ledger_database")
    if name == "redis":
        url = request.getfixturevalue("redis_url")
    found = Settings(database=DatabaseSettings(url=database), redis=RedisSettings(url=url))
    upgraded(found)
    return found


@pytest.fixture
def cache(store: Settings) -> Iterator[TokenCache]:
    made: TokenCache = (
        RedisTokenCache(store.redis)
        if store.redis.url
        else SqlTokenCache(database_url(store.database.url))
    )
    yield made
    made.close()


def lease(cache: TokenCache, stale: str = "", lease_ms: int = LEASE_MS) -> str:
    taken = cache.take("app", stale, 0, lease_ms)
    assert isinstance(taken, Leased)
    return taken.fence


def test_what_was_put_is_taken_by_everyone(cache: TokenCache) -> None:
    assert cache.put("app", lease(cache), StoredToken(b"\x00sealed", "d1", 60_000, 0))
    taken = cache.take("app", "", 0, LEASE_MS)
    assert isinstance(taken, StoredToken)
    assert (taken.sealed, taken.digest) == (b"\x00sealed", "d1")
    assert 50_000 < taken.left_ms <= 60_000
    assert 0 <= taken.age_ms < 10_000


def test_one_alone_has_the_lease(cache: TokenCache) -> None:
    fence = lease(cache)
    busy = cache.take("app", "", 0, LEASE_MS)
    assert isinstance(busy, Busy)
    assert 0 < busy.left_ms <= LEASE_MS
    assert isinstance(cache.take("another", "", 0, LEASE_MS), Leased)
    cache.give_up("app", "not the fence")
    assert isinstance(cache.take("app", "", 0, LEASE_MS), Busy)
    cache.give_up("app", fence)
    assert isinstance(cache.take("app", "", 0, LEASE_MS), Leased)


def test_a_lease_ends_by_itself_and_its_holder_puts_nothing_any_more(cache: TokenCache) -> None:
    slept = lease(cache, lease_ms=1)
    wait_for(lambda: isinstance(cache.take("app", "", 0, 60_000), Leased))
    assert not cache.put("app", slept, StoredToken(b"late", "d1", 60_000, 0))
    assert isinstance(cache.take("app", "", 0, LEASE_MS), Busy)


def test_a_stale_token_is_not_given_again_unless_it_is_fresh(cache: TokenCache) -> None:
    cache.put("app", lease(cache), StoredToken(b"one", "d1", 60_000, 0))
    assert isinstance(cache.take("app", "d1", 60_000, LEASE_MS), StoredToken)
    fence = lease(cache, "d1")
    assert isinstance(cache.take("app", "d1", 0, LEASE_MS), Busy)
    assert isinstance(cache.take("app", "d0", 0, LEASE_MS), StoredToken)
    assert cache.put("app", fence, StoredToken(b"two", "d2", 60_000, 0))
    taken = cache.take("app", "d1", 0, LEASE_MS)
    assert isinstance(taken, StoredToken)
    assert taken.sealed == b"two"


def test_an_expired_token_is_gone(cache: TokenCache) -> None:
    cache.put("app", lease(cache), StoredToken(b"one", "d1", 1, 0))
    wait_for(lambda: isinstance(cache.take("app", "", 0, LEASE_MS), Leased))


def test_tokens_lie_sealed_in_the_store(store: Settings) -> None:
    tokens, provider = open_tokens(store, Provider()), Provider()
    assert tokens.get(account(token="s3cret"), provider) == "token-1"
    tokens.close()
    if store.redis.url:
        with redis.Redis.from_url(store.redis.url) as client:
            (name,) = client.scan_iter()
            shown = repr(client.hgetall(name)) + repr(name)
    else:
        engine = create_engine(database_url(store.database.url))
        with engine.connect() as connection:
            shown = repr(connection.execute(text("SELECT * FROM access_tokens")).one())
        engine.dispose()
    assert digest_of("token-1") in shown
    assert "token-1" not in shown
    assert "s3cret" not in shown


def test_the_database_stands_in_while_redis_is_away(sqlite_database: str) -> None:
    settings = Settings(
        database=DatabaseSettings(url=sqlite_database),
        redis=RedisSettings(url="redis://127.0.0.1:1/0"),
    )
    upgraded(settings)
    provider, mine = Provider(), account(token="s3cret")
    processes = [open_tokens(settings, provider) for _ in range(3)]
    assert [each.get(mine, provider) for each in processes] == ["token-1"] * 3
    assert len(provider.asked) == 1
    for each in processes:
        each.close()


def test_sqlite_gives_a_token_while_another_writes(
    sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "BUSY_MS", 100)
    url = database_url(sqlite_database)
    upgraded(Settings(database=DatabaseSettings(url=sqlite_database)))
    tokens, writer = SqlTokenCache(url), Database(url)
    assert tokens.put("app", lease(tokens), StoredToken(b"sealed", "d1", 60_000, 0))
    with writer.begin():
        taken = tokens.take("app", "", 0, LEASE_MS)
        assert isinstance(taken, StoredToken)
        with pytest.raises(CacheAway, match="locked"):
            tokens.take("another", "", 0, LEASE_MS)
    assert isinstance(tokens.take("another", "", 0, LEASE_MS), Leased)
    tokens.close()
    writer.close()


def test_a_redis_that_forgot_everything_costs_one_request(redis_url: str, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'unused.db'}"
    settings = Settings(database=DatabaseSettings(url=database), redis=RedisSettings(url=redis_url))
    provider, mine = Provider(), account(token="s3cret")
    first, second = (open_tokens(settings, provider) for _ in range(2))
    assert first.get(mine, provider) == "token-1"
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    assert first.get(mine, provider) == "token-1"
    assert second.get(mine, provider) == "token-2"
    assert len(provider.asked) == 2
    first.close()
    second.close()


# ---- the stampede ----------------------------------------------------------------------------


class Fleet:
    """Processes of four threads that send at the same moment."""

    def __init__(self, endpoint: str, settings: Settings, processes: int = PROCESSES) -> None:
        told = {
            "endpoint": endpoint,
            "database": settings.database.url,
            "redis": settings.redis.url,
            "threads": THREADS,
        }
        self.processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.channels.token_racer",
                    json.dumps({**told, "name": n}),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(processes)
        ]
        assert [self._line(process) for process in self.processes] == ["ready\n"] * processes

    def send(self) -> list[str]:
        """What became of one message of every thread."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [one for process in self.processes for one in json.loads(self._line(process))]

    def stop(self) -> None:
        for process in self.processes:
            process.communicate()

    @staticmethod
    def _line(process: "subprocess.Popen[str]") -> str:
        assert process.stdout is not None
        return process.stdout.readline()


@pytest.mark.parametrize("processes", [3, pytest.param(PROCESSES, marks=pytest.mark.soak)])
@pytest.mark.soak(cases="sql")
def test_a_stampede_of_processes_is_one_request_for_a_token(
    processes: int, store: Settings, tmp_path: Path
) -> None:
    with spawn(tmp_path, fsync=False) as simulator:
        fleet = Fleet(f"{simulator.url}/wecom", store, processes)
        accepted = ["Accepted"] * (processes * THREADS)
        try:
            assert fleet.send() == accepted
            assert given(simulator.report(summary_only=True).summary.counts) == (1, 1)
            # Slow enough that everybody has been refused before the new token is there.
            simulator.control(expire_tokens=True, rules=[Faults(method="TOKEN", latency_ms="300")])
            assert fleet.send() == accepted
            assert given(simulator.report(summary_only=True).summary.counts) == (2, 2)
            simulator.control(rules=[])
            assert fleet.send() == accepted
            assert given(simulator.report(summary_only=True).summary.counts) == (2, 2)
        finally:
            fleet.stop()


@pytest.mark.soak(
    small="::test_a_refused_login_is_told_to_the_whole_fleet_and_asked_again_after_a_minute"
)
def test_a_refused_login_costs_a_fleet_of_eight_processes_one_request(
    store: Settings, tmp_path: Path
) -> None:
    with spawn(tmp_path, fsync=False) as simulator:
        fleet = Fleet(f"{simulator.url}/wecom", store)
        try:
            simulator.control(rules=[Faults(method="TOKEN", codes={"40001": 1.0})])
            for _ in range(3):
                outcomes = fleet.send()
                assert len(outcomes) == PROCESSES * THREADS
                assert all("wecom refused the login: 40001" in one for one in outcomes)
            report = simulator.report(summary_only=True).summary
            assert (report.counts["asked.token.wecom"], report.accepted) == (1, 0)
        finally:
            fleet.stop()


def given(counts: dict[str, int]) -> tuple[int, int]:
    """Requests for a token that were answered with one, and how many of those were new."""
    return counts["tokens.wecom"], counts["new_tokens.wecom"]
