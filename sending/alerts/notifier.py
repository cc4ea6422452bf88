"""Alerts: what a person has to look at, told once in a window by the whole fleet and always counted.

Any thread raises; one thread notes them in the ledger, which says what is this process's to tell. It tells
the log; the webhook hears of it from whichever process claims the post, until one arrived. While the ledger
is away every process tells and posts by a window of its own, since an outage is no time for silence.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Metric

from idempotency.alerts.windows import CLEARED, Post, Raised, Told
from idempotency.ledger import LedgerError
from sending.alerts.windows import OwnWindows, Subject

log = structlog.get_logger(__name__)
LASTING: Final = frozenset(
    {
        "oldest_uncommitted",
        "lag",
        "dead_letters_held",
        "breaker_open",
        "unknown_age",
        "recovery_overdue",
        "login_refused",
        "policy_refused",
        "policy_lanes_kept",
    }
)
"""Rules that are raised at every look until they are over; all others tell what happened."""
RULES: Final = LASTING | {
    "parked",
    "retries_spent",
    "heartbeat_lost",
    "records_removed",
    "log_began_anew",
}
"""All that there are; docs/alerts.md has a section for each."""
_MS: Final = 1_000
_POST_TRIES: Final = 3
_POST_PAUSE_S: Final = 1.0
_POST_LEASE_MS: Final = 30_000
"""Beyond the time limit of a post: who claimed it and died holds it up for so long."""
_MOST_POSTS: Final = 20
"""Of one flush."""
_MOST_SUBJECTS: Final = 1_000
"""Different alerts between two flushes; what is more is counted in the metric alone."""

Send = Callable[[Mapping[str, Any]], str | None]
"""Posts one alert; why it did not arrive, or None."""


class AlertWindow(Protocol):
    """The fleet's alerts (idempotency/alerts/windows.py). Every method raises LedgerError."""

    def note(self, raised: Sequence[Raised], window_ms: int, by: str) -> list[Told]:
        """Counts what came up; returns what is ours to tell now."""
        ...

    def upkeep(self, window_ms: int, clear_ms: int, by: str) -> list[Told]:
        """Tells what was kept back, and what is over; returns what is ours to tell."""
        ...

    def claim_post(self, lease_ms: int) -> Post | None:
        """The next post that is due, ours for that long; None if there is none."""
        ...

    def posted(self, post: Post) -> None:
        """It arrived."""
        ...

    def not_posted(self, post: Post, error: str) -> None:
        """It did not; it is due again later."""
        ...


class Alert(NamedTuple):
    """One thing that went wrong."""

    rule: str
    """As docs/alerts.md names it."""
    lane: str
    """Empty where it is none of a lane."""
    about: str
    """The reason, the account, the worker: with rule and lane it names the alert."""
    text: str
    """One sentence for whoever is called; no receiver, no content, no secret."""

    @property
    def subject(self) -> Subject:
        """What it is deduplicated by."""
        return self.rule, f"{self.lane} {self.about}".strip()

    def raised(self, count: int, after: int) -> Raised:
        """As the ledger counts it."""
        return Raised(*self, count, lasting=self.rule in LASTING, after=after)


class AlertNotifier:
    """`raise_` is any thread's, the rest the desk's own."""

    def __init__(
        self,
        registry: CollectorRegistry,
        window_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        windows: AlertWindow | None = None,
        post: Send | None = None,
        post_s: float = 5.0,
        name: str = "",
    ) -> None:
        """Without `windows` it tells by its own. `name` is whose desk it is, `post_s` a post's limit."""
        self._raised = _metric(registry, "alerts", "Times that an alert came up.", "lane")
        self._not_posted = _metric(registry, "alerts_not_posted", "Posts that failed.")
        self._window_ms = int(window_s * _MS)
        self._own = OwnWindows(monotonic)
        self._windows = windows
        self._post = post
        self._lease_ms = int(post_s * _MS) + _POST_LEASE_MS
        self._name = name
        self._lock = threading.Lock()  # guards the three below
        self._seen: Counter[Subject] = Counter()
        self._latest: dict[Subject, Alert] = {}
        self._after: dict[Subject, int] = {}
        self._stop = threading.Event()

    def raise_(self, alert: Alert, count: int = 1, *, after: int = 0) -> None:
        """It came up; `count` 0: it goes on. With `after` it counts only where nobody in the fleet noted
        it since then, in epoch milliseconds. Returns at once."""
        self._raised.labels(alert.rule, alert.lane).inc(count)
        with self._lock:
            if alert.subject in self._latest or len(self._latest) < _MOST_SUBJECTS:
                self._seen[alert.subject] += count
                self._latest[alert.subject] = alert
                self._after[alert.subject] = after

    def flush(self) -> None:
        """Tell what came up since the last time and is due, and post what is to be posted."""
        with self._lock:
            seen, latest, after = self._seen, self._latest, self._after
            self._seen, self._latest, self._after = Counter(), {}, {}
        raised = [alert.raised(seen[s], after[s]) for s, alert in latest.items()]
        try:
            self._note(raised)
            self._post_due()
        except LedgerError as exc:
            log.debug("alerts_not_posted_now", cause=str(exc))

    def upkeep(self, clear_s: float) -> None:
        """Tell what was kept back in windows that are over, and what nobody raised for `clear_s`; 0:
        nothing is taken for over. For one process of the fleet at a time. Raises LedgerError."""
        if self._windows is not None:
            for told in self._windows.upkeep(self._window_ms, int(clear_s * _MS), self._name):
                self._say(told)
            self._post_due()

    def stop(self) -> None:
        """Do not try a webhook again; idempotent."""
        self._stop.set()

    def _note(self, raised: Sequence[Raised]) -> None:
        if self._windows is None:
            self._tell_alone(raised)
            return
        raised = _merged([*self._own.left(), *raised])
        if not raised:
            return
        try:
            told = self._windows.note(raised, self._window_ms, self._name)
        except LedgerError as exc:
            log.warning("alerts_by_own_window", cause=str(exc))
            self._tell_alone(raised)
        else:
            for one in told:
                self._say(one)

    def _tell_alone(self, raised: Sequence[Raised]) -> None:
        for told in self._own.note(raised, self._window_ms):
            self._say(told)
            error = self._posted(self._body(told, int(time.time() * _MS), self._name))
            if error is not None:
                self._count_failure(told, error)

    def _say(self, told: Told) -> None:
        fields = {"rule": told.rule, "lane": told.lane, "about": told.about, "text": told.text}
        if told.state == CLEARED:
            log.info("alert_cleared", **fields, count=told.count)
        else:
            log.error("alert", **fields, count=told.count)

    def _post_due(self) -> None:
        """Posts that any process of the fleet told and none got through; the first failure ends it."""
        if self._windows is None or self._post is None:
            return
        for _ in range(_MOST_POSTS):
            post = self._windows.claim_post(self._lease_ms)
            if post is None:
                return
            error = self._post(self._body(post.told, post.at, post.by))
            if error is not None:
                self._count_failure(post.told, error)
                self._windows.not_posted(post, error)
                return
            self._windows.posted(post)

    def _body(self, told: Told, at: int, by: str) -> dict[str, Any]:
        return {**msgspec.structs.asdict(told), "from": by, "at": at}

    def _count_failure(self, told: Told, error: str) -> None:
        self._not_posted.labels(told.rule).inc()
        log.warning("alert_not_posted", rule=told.rule, about=told.about, cause=error)

    def _posted(self, body: Mapping[str, Any]) -> str | None:
        """None once the webhook took it, or where there is none."""
        error = None
        for attempt in range(_POST_TRIES if self._post else 0):
            assert self._post is not None
            if attempt and self._stop.wait(_POST_PAUSE_S * attempt):
                break
            error = self._post(body)
            if error is None:
                return None
        return error


def runbook(rule: str) -> str:
    """Where it is written what to do."""
    return f"docs/alerts.md#{rule}"


def _merged(raised: Sequence[Raised]) -> list[Raised]:
    """One of each subject, the last one's words with the sum of the counts."""
    merged: dict[Subject, Raised] = {}
    for one in raised:
        before = merged.get((one.rule, one.subject))
        count = one.count + (before.count if before else 0)
        merged[one.rule, one.subject] = msgspec.structs.replace(one, count=count)
    return list(merged.values())


def _metric(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Metric:
    return Metric(f"hongyan_{name}", text, ("rule", *labels), registry=registry)
