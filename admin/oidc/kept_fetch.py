"""A document of the provider, fetched by one thread for all, and kept; a failure is kept, too.

One thread waits for a provider that hangs, and others for that thread. All of them get the same refusal, as
does everybody who comes within `FAILURE_KEPT_S`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from admin.oidc.id_token import OidcRefused

FAILURE_KEPT_S: Final = 10.0
"""Time for which nobody asks again after a failed fetch."""
T = TypeVar("T")


class KeptFetch(Generic[T]):
    """Thread-safe. `fetch` raises OidcRefused."""

    def __init__(self, fetch: Callable[[], T], monotonic: Callable[[], float]) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._fetching = threading.Lock()
        # `_fetch_again` of the thread that holds _fetching writes both, each at once; all read them.
        self._fetched: tuple[float, T] | None = None
        self._failed: tuple[float, str, str] | None = None

    def newer_than(self, age_s: float) -> T:
        """Returns the value, fetched again if it is as old as `age_s`. Raises OidcRefused."""
        found = self._kept(age_s)
        if found is None:
            with self._fetching:
                found = self._kept(age_s)  # another thread may have fetched it meanwhile
                if found is None:
                    found = self._fetch_again()
        return found

    def _kept(self, age_s: float) -> T | None:
        """Returns the value; None if it has to be fetched. Raises OidcRefused after a failure."""
        now, fetched, failed = self._monotonic(), self._fetched, self._failed
        if fetched is not None and now - fetched[0] < age_s:
            return fetched[1]
        if failed is not None and now - failed[0] < FAILURE_KEPT_S:
            _, key, text = failed
            raise OidcRefused(key, f"nobody asks again for a moment after {text}")
        return None

    def _fetch_again(self) -> T:
        try:
            found = self._fetch()
        except OidcRefused as exc:
            self._failed = self._monotonic(), exc.key, str(exc)
            raise
        self._fetched = self._monotonic(), found
        return found
