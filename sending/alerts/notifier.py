"""Alerts for a person: always counted, and sent once in a window by the whole fleet.

Any thread raises them. One thread notes them in the ledger, and logs those that the ledger gives this
process to send. The process that claims the post tries the webhook, until one arrived. While the ledger is
away, every process logs and posts by a window of its own. It logs all alerts before it posts, since the
webhook may be away, too.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from backends.metrics.instruments import counter_of
from backends.metrics.shared_families import ALERTS, ALERTS_NOT_POSTED
from idempotency.alerts.windows import CLEARED, AlertReport, Post, Raised
from idempotency.ledger import LedgerError
from sending.alerts.windows import OwnWindows, Subject

log = structlog.get_logger(__name__)
LASTING: Final = frozenset(
    {
        "oldest_uncommitted",
        "lag",
        "dead_letters_held",
        "breaker_open",
        "outbox_late",
        "outcomes_late",
        "lost",
        "unknown_age",
        "recovery_overdue",
        "lane_paused",
        "login_refused",
        "policy_refused",
        "policy_lanes_kept",
        "resend_job_paused",
        "campaign_paused",
        "lookback_forward_late",
    }
)
"""Rules that are raised at every look until they are over; each other one reports an event."""
RULES: Final = LASTING | {
    "parked",
    "dropped",
    "retries_spent",
    "heartbeat_lost",
    "records_removed",
    "log_began_anew",
    "outbox_parked",
    "lookback_unresolved",
    "lookback_conflict",
}
"""All rules; docs/runbook.md has a section for each."""
_MS: Final = 1_000
_POST_TRIES: Final = 3
_POST_PAUSE_S: Final = 1.0
_POST_LEASE_MS: Final = 30_000
"""Beyond the time limit of a post: a process that claimed it and died delays it for so long."""
_MOST_POSTS: Final = 20
"""Most posts of one flush."""
_MOST_SUBJECTS: Final = 1_000
"""Most different alerts between two flushes; the metric alone counts any more."""
_MOST_UNPOSTED: Final = 1_000
"""Most alerts of the own window that wait for their post; the oldest are given up."""

Send = Callable[[Mapping[str, Any]], str | None]
"""Posts one alert. Returns the error, or None if it arrived."""


class AlertWindow(Protocol):
    """The fleet's alerts (idempotency/alerts/windows.py). Every method raises LedgerError."""

    def note(self, raised: Sequence[Raised], window_ms: int, by: str) -> list[AlertReport]:
        """Counts the alerts. Returns those that this process must send now."""
        ...

    def upkeep(self, window_ms: int, clear_ms: int, by: str) -> list[AlertReport]:
        """Returns held-back alerts that are due and alerts that are over, for this process to send."""
        ...

    def claim_post(self, lease_ms: int) -> Post | None:
        """Claims the next due post for `lease_ms`. Returns None if there is none."""
        ...

    def posted(self, post: Post) -> None:
        """Notes that the post arrived."""
        ...

    def not_posted(self, post: Post, error: str) -> None:
        """Notes that it did not arrive; it is due again later."""
        ...


class Alert(NamedTuple):
    """One thing that went wrong."""

    rule: str
    """Its name in docs/runbook.md."""
    lane: str
    """Empty if it concerns no lane."""
    about: str
    """The reason, the account, the worker: with rule and lane it names the alert."""
    text: str
    """One sentence for the person on call; no receiver, no content, no secret."""

    @property
    def subject(self) -> Subject:
        """The key of its window."""
        return self.rule, f"{self.lane} {self.about}".strip()

    def raised(self, count: int, after: int) -> Raised:
        """Returns the alert as the ledger counts it."""
        return Raised(*self, count, lasting=self.rule in LASTING, after=after)


class AlertNotifier:
    """Any thread may call `raise_` and `stop`; the thread of `AlertMonitor` calls the rest."""

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
        """Without `windows` it uses its own. `name` is the process's, `post_s` a post's time limit."""
        self._raised = counter_of(ALERTS, registry)
        self._not_posted = counter_of(ALERTS_NOT_POSTED, registry)
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
        self._unposted: deque[tuple[AlertReport, int]] = deque()
        """Alerts of the own window that were logged and not posted, with their time; written by
        `_tell_alone` and `_post_own`, in the thread of `AlertMonitor`."""
        self._stop = threading.Event()

    def raise_(self, alert: Alert, count: int = 1, *, after: int = 0) -> None:
        """Counts an alert; `count` 0: it goes on. With `after`, in epoch milliseconds, it counts only if
        the fleet has not noted it since then. Returns at once."""
        self._raised.labels(alert.rule, alert.lane).inc(count)
        with self._lock:
            if alert.subject in self._latest or len(self._latest) < _MOST_SUBJECTS:
                self._seen[alert.subject] += count
                self._latest[alert.subject] = alert
                self._after[alert.subject] = after

    def flush(self) -> None:
        """Sends the due alerts that were raised since the last flush, and makes the due posts."""
        with self._lock:
            seen, latest, after = self._seen, self._latest, self._after
            self._seen, self._latest, self._after = Counter(), {}, {}
        raised = [alert.raised(seen[s], after[s]) for s, alert in latest.items()]
        try:
            self._note(raised)
            self._post_own()
            self._post_due()
        except LedgerError as exc:
            log.debug("alerts_not_posted_now", cause=str(exc))

    def upkeep(self, clear_s: float) -> None:
        """Sends held-back alerts whose window is over, and the end of those not raised for `clear_s`
        seconds; 0: of none. For one process of the fleet at a time. Raises LedgerError."""
        if self._windows is not None:
            for notice in self._windows.upkeep(self._window_ms, int(clear_s * _MS), self._name):
                self._say(notice)
            self._post_due()

    def stop(self) -> None:
        """Tries no post again; idempotent."""
        self._stop.set()

    def _note(self, raised: Sequence[Raised]) -> None:
        if self._windows is None:
            self._tell_alone(raised)
            return
        raised = _merged([*self._own.left(), *raised])
        if not raised:
            return
        try:
            notices = self._windows.note(raised, self._window_ms, self._name)
        except LedgerError as exc:
            log.warning("alerts_by_own_window", cause=str(exc))
            self._tell_alone(raised)
        else:
            for notice in notices:
                self._say(notice)

    def _tell_alone(self, raised: Sequence[Raised]) -> None:
        at = int(time.time() * _MS)
        for notice in self._own.note(raised, self._window_ms):
            self._say(notice)
            if self._post is not None:
                self._unposted.append((notice, at))
        while len(self._unposted) > _MOST_UNPOSTED:
            notice, _ = self._unposted.popleft()
            self._count_failure(notice, f"{_MOST_UNPOSTED:,} newer alerts wait for their post")

    def _say(self, one: AlertReport) -> None:
        fields = {"rule": one.rule, "lane": one.lane, "about": one.about, "text": one.text}
        if one.state == CLEARED:
            log.info("alert_cleared", **fields, count=one.count)
        else:
            log.error("alert", **fields, count=one.count)

    def _post_own(self) -> None:
        """Makes posts of the own window; ends at the first failure. The next flush makes the others, after
        it logged what is new."""
        for _ in range(min(len(self._unposted), _MOST_POSTS)):
            notice, at = self._unposted.popleft()
            error = self._posted(self._body(notice, at, self._name))
            if error is not None:
                self._count_failure(notice, error)
                return

    def _post_due(self) -> None:
        """Makes posts of the whole fleet that have not arrived; ends at the first failure."""
        if self._windows is None or self._post is None:
            return
        for _ in range(_MOST_POSTS):
            post = self._windows.claim_post(self._lease_ms)
            if post is None:
                return
            error = self._post(self._body(post.report, post.at, post.by))
            if error is not None:
                self._count_failure(post.report, error)
                self._windows.not_posted(post, error)
                return
            self._windows.posted(post)

    def _body(self, notice: AlertReport, at: int, by: str) -> dict[str, Any]:
        return {**msgspec.structs.asdict(notice), "from": by, "at": at}

    def _count_failure(self, notice: AlertReport, error: str) -> None:
        self._not_posted.labels(notice.rule).inc()
        log.warning("alert_not_posted", rule=notice.rule, about=notice.about, cause=error)

    def _posted(self, body: Mapping[str, Any]) -> str | None:
        """Posts, with repeats. Returns the error; None if it arrived."""
        error = None
        for attempt in range(_POST_TRIES):
            assert self._post is not None
            if attempt and self._stop.wait(_POST_PAUSE_S * attempt):
                break
            error = self._post(body)
            if error is None:
                return None
        return error


def runbook(rule: str) -> str:
    """Returns the place of the rule's instructions."""
    return f"docs/runbook.md#{rule}"


def _merged(raised: Sequence[Raised]) -> list[Raised]:
    """Returns one alert of each subject: the last one's text with the sum of the counts."""
    merged: dict[Subject, Raised] = {}
    for one in raised:
        before = merged.get((one.rule, one.subject))
        count = one.count + (before.count if before else 0)
        merged[one.rule, one.subject] = msgspec.structs.replace(one, count=count)
    return list(merged.values())
