"""Access tokens for the whole fleet: held in this process, shared through Redis or the database.

    get     the token held here, until it expires; else the fleet's; else the provider's, under the fleet's
            lease
    renew   the same, but never the token that the provider has just refused

A provider that gives a new token may void the one before, and limits its requests. So one process asks, and
the others wait for its token. Each account's token is refreshed a little before it expires, beside the
sends, at a moment that differs from process to process. Some providers (WeCom, WeChat's stable tokens) give
the same token again until shortly before its end. They are asked again nearer to it.

Without Redis the database serves. Redis may forget everything at any moment: then the next process asks the
provider. In neither store is a token readable (channels/tokens/seal.py).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from backends.redis.token_cache import RedisTokenCache, TokenCache
from backends.settings import Settings, SettingsError
from backends.sql.database import database_url
from backends.sql.token_cache import SqlTokenCache
from channels.channel import Account, TokenSource
from channels.engine import Sender
from channels.tokens.contract import LoginUnavailable, TokenLife, TokenUnavailable
from channels.tokens.fetch import REFUSED_S, FoundToken, TokenFetcher, TokenNeed, late
from channels.tokens.seal import TokenCipher

log = structlog.get_logger(__name__)

WAIT_S: Final = 5.0
"""Longest wait of a send for a token: less than the margin of a worker's lease (a fifth of 30 s by
default), which is checked before the wait."""
SETTLE_S: Final = 1.0
"""A token refused so soon after it was given is not asked for again before this time has passed."""
FAILED_S: Final = 1.0
"""Time for which a failure to get a token is the answer for all threads of this process."""
AHEAD_S: Final = 240.0
"""Longest time before its end to refresh a token; WeChat gives a new one in the last 5 minutes."""
AHEAD_SHARE: Final = 0.1
"""The same as a share of the time left, for tokens of a shorter life."""
_LOGINS: Final = 2
"""Logins kept for one account: lanes may differ about it while its secret changes."""


class _Held(NamedTuple):
    """A token in this process; times on the monotonic clock."""

    text: str
    since: float
    ahead_at: float
    until: float


class _Entry:
    """The token of one login of an account. `_look`, `_refresh` and `_postpone` write `held` and `failed`
    under `lock`; all read them."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.seal = TokenCipher(account)
        self.lock = threading.Lock()
        self.held: _Held | None = None
        self.failed: tuple[float, TokenUnavailable | None] = (0.0, None)
        """The end of a failure, and the failure."""


class SharedTokens:
    """Implements `channels.tokens.contract.Tokens`. Safe from many threads."""

    def __init__(
        self,
        sender: Sender,
        caches: Sequence[TokenCache],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        luck: Callable[[], float] = random.random,
    ) -> None:
        """`caches`: the first that answers serves; the others replace it while it is away."""
        self._fleet = TokenFetcher(sender, caches, monotonic=monotonic, sleep=sleep, luck=luck)
        self._monotonic = monotonic
        self._luck = luck
        self._entries: dict[str, tuple[_Entry, ...]] = {}
        """By the account's name, the latest login first; `_entry` replaces a tuple as a whole."""
        self._entering = threading.Lock()

    def get(self, account: Account, source: TokenSource) -> str:
        text = self.held(account, source)
        return self._renewed(self._entry(account), source, "") if text is None else text

    def held(self, account: Account, source: TokenSource) -> str | None:
        entry = self._entry(account)
        held, now = entry.held, self._monotonic()
        if held is None or now >= held.until:
            return None
        if now >= held.ahead_at:
            self._refresh_beside(entry, source)
        return held.text

    def renew(self, account: Account, source: TokenSource, stale: str) -> str:
        return self._renewed(self._entry(account), source, stale)

    def refused_logins(self) -> list[str]:
        """Returns the accounts whose login was refused when it was last tried, by name."""
        now = self._monotonic()
        standing = [(name, *entry.failed) for name, (entry, *_) in list(self._entries.items())]
        return sorted(
            name
            for name, until, cause in standing
            if isinstance(cause, LoginUnavailable) and now < until + REFUSED_S
        )

    def lives(self) -> dict[str, TokenLife]:
        """Returns account to the token that this process holds, without its text."""
        now = self._monotonic()
        held = [(name, entry.held) for name, (entry, *_) in list(self._entries.items())]
        return {
            name: TokenLife(now - one.since, one.until - now)
            for name, one in held
            if one is not None and one.until > now
        }

    def close(self) -> None:
        """Closes the stores. Idempotent."""
        self._fleet.close()

    def _entry(self, account: Account) -> _Entry:
        """Returns the entry of an equal account: each lane has an object of its own."""
        entries = self._entries.get(account.name, ())
        if entries and entries[0].account == account:
            return entries[0]
        with self._entering:
            entries = self._entries.get(account.name, ())
            known = (entry for entry in entries if entry.account == account)
            found = next(known, None) or _Entry(account)
            others = [entry for entry in entries if entry is not found]
            self._entries[account.name] = (found, *others)[:_LOGINS]
        return found

    def _renewed(self, entry: _Entry, source: TokenSource, stale: str) -> str:
        """Returns a good token other than `stale`. One thread of the process looks, the others wait."""
        deadline = self._monotonic() + WAIT_S
        if not entry.lock.acquire(timeout=WAIT_S):
            raise late(entry.account)
        try:
            now, held = self._monotonic(), entry.held
            if held is not None and held.text != stale and now < held.until:
                return held.text
            until, cause = entry.failed
            if cause is not None and now < until:
                raise _again(cause, until - now)
            wanted = TokenNeed(source, stale, deadline, SETTLE_S)
            return self._look(entry, wanted)
        finally:
            entry.lock.release()

    def _look(self, entry: _Entry, wanted: TokenNeed) -> str:
        """Runs under the lock. A failure is everyone's answer for a moment: the next hundred threads must
        not each ask a provider that has just refused."""
        try:
            found = self._fleet.find(entry.account, entry.seal, wanted)
        except TokenUnavailable as exc:
            lasts_s = exc.left_s if isinstance(exc, LoginUnavailable) else FAILED_S
            entry.failed = (self._monotonic() + lasts_s, exc)
            raise
        if found is None:
            return wanted.text
        entry.failed = (0.0, None)
        entry.held = self._dated(found)
        return found.text

    def _refresh_beside(self, entry: _Entry, source: TokenSource) -> None:
        """Refreshes ahead of expiry on a thread of its own: no send waits while the token is good."""
        if not entry.lock.acquire(blocking=False):
            return
        name = f"token-{entry.account.name}"
        thread = threading.Thread(
            target=self._refresh, args=(entry, source), name=name, daemon=True
        )
        try:
            thread.start()
        except RuntimeError as exc:  # the process may have no more threads
            self._postpone(entry)
            entry.lock.release()
            log.warning("access_token_not_refreshed", account=entry.account.name, reason=str(exc))

    def _refresh(self, entry: _Entry, source: TokenSource) -> None:
        """Runs under the lock, and releases it."""
        try:
            due = self._postpone(entry)
            if due is None:
                return
            held, now = due
            # A token younger than the rest of this one's life needs no new request.
            need = TokenNeed(source, held.text, now + WAIT_S, held.until - now, beside=True)
            self._look(entry, need)
        except TokenUnavailable as exc:
            entry.failed = (0.0, None)  # the held token is good: no other thread needs the failure
            log.warning("access_token_not_refreshed", account=entry.account.name, reason=str(exc))
        except Exception:  # any error: the held token is still good
            log.exception("access_token_refresh_broke", account=entry.account.name)
        finally:
            entry.lock.release()

    def _postpone(self, entry: _Entry) -> tuple[_Held, float] | None:
        """Runs under the lock. Sets the next refresh, nearer to the end, should this one fail. Returns the
        token that is to be refreshed, and the monotonic time; None if no refresh is due."""
        now, held = self._monotonic(), entry.held
        if held is None or not held.ahead_at <= now < held.until:
            return None
        entry.held = self._dated(FoundToken(held.text, held.until - now))._replace(since=held.since)
        return held, now

    def _dated(self, found: FoundToken) -> _Held:
        now = self._monotonic()
        ahead_s = min(AHEAD_S, found.left_s * AHEAD_SHARE) * (0.5 + self._luck() / 2)
        return _Held(found.text, now, now + found.left_s - ahead_s, now + found.left_s)


def _again(cause: TokenUnavailable, left_s: float) -> TokenUnavailable:
    """Returns the same for another thread: one exception raised by many would gather their tracebacks."""
    if isinstance(cause, LoginUnavailable):
        return LoginUnavailable(str(cause), left_s)
    return TokenUnavailable(str(cause))


def open_tokens(settings: Settings, sender: Sender) -> SharedTokens:
    """Returns the stores that the settings name: Redis where there is one, and the database.

    Raises SettingsError for a URL that cannot be read; connects to nothing yet."""
    caches: list[TokenCache] = []
    if settings.redis.url:
        try:
            caches.append(RedisTokenCache(settings.redis))
        except ValueError as exc:
            raise SettingsError(f"redis.url: {exc}") from exc
    try:
        caches.append(SqlTokenCache(database_url(settings.database.url, settings.base)))
    except ValueError as exc:
        raise SettingsError(f"database.url: {exc}") from exc
    return SharedTokens(sender, caches)
