"""How large a truth run is, its five lanes, and how much of each kind of loss it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.harness.notifications import webhook

CODES, TROUBLE, UNKEPT = "webhook.verification", "webhook.notice", "webhook.marketing"
SMS, HELD = "sms.notice", "sms.marketing"
"""`UNKEPT` has no ledger. Once the main traffic is over, `HELD` has quiet hours at all times."""
LANES = (CODES, TROUBLE, UNKEPT, SMS, HELD)
SHARES = (0.25, 0.25, 0.1, 0.3, 0.1)
TRACED = (CODES, SMS, HELD)
"""Lanes whose every send is in the trace."""
KEPT = (CODES, TROUBLE, SMS)
"""Lanes that get lost records: they have a ledger, and nothing holds what recovery sends."""
TTL_MS = 3_600_000
PARTITIONS = 4
WORKERS = 3
_WHOLE = 200_000
_LEAST = 12
_LARGE = 20_000
"""Notifications from which on compiled code pays."""

_LANE: Mapping[str, Any] = {
    "threads": 16,
    "timeout_ms": 5_000,
    "ttl_ms": TTL_MS,
    "max_ttl_ms": TTL_MS,
    "retry": {"attempts": 20, "base_ms": 200, "cap_ms": 2_000},
}
_WEBHOOK = {**_LANE, "accounts": ["hook"], "lost": "resend"}
_SMS = {**_LANE, "accounts": ["sms"], "batch": 1, "lost": "resend"}


@dataclass(frozen=True)
class Extent:
    """One run; counts are those of 200,000 notifications, scaled, and at least a dozen."""

    messages: int
    seed: int
    every: str
    """Interval of `hongyan spark run`."""
    kills: int
    """Workers killed during the traffic."""
    driver_kills: int
    """Kills of the Spark driver in the second run of the day; 0: there is no second run."""
    leak: float = 0.05

    @property
    def deleted_unread(self) -> int:
        """Records that Kafka removes after the ingest has read them."""
        return self._scaled(200)

    @property
    def passed(self) -> int:
        """Records that moved offsets pass."""
        return self._scaled(200)

    @property
    def deleted_early(self) -> int:
        """Records that Kafka removes before any ingest."""
        return self._scaled(100)

    @property
    def forgotten(self) -> int:
        """Rows taken out of the ledger."""
        return self._scaled(100)

    @property
    def untraced(self) -> int:
        """Notifications none of whose events arrives."""
        return self._scaled(500)

    @property
    def unread(self) -> int:
        """Records that are past their TTL above the committed offset."""
        return self._scaled(50)

    @property
    def kept_out(self) -> int:
        """Notifications of each kind without a finding: dropped, expired, recalled, held, poison."""
        return self._scaled(60)

    @property
    def spark_properties(self) -> Mapping[str, Any]:
        """Properties of the jobs' session: a small run compiles less and shuffles in fewer pieces."""
        quiet = {"spark.ui.showConsoleProgress": False}
        if self.messages >= _LARGE:
            return {**quiet, "spark.driver.memory": "2g"}
        java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        return {
            **quiet,
            "spark.sql.shuffle.partitions": 2,
            "spark.driver.extraJavaOptions": java,
        }

    def _scaled(self, count: int) -> int:
        return max(_LEAST, min(count, count * self.messages // _WHOLE))


def policy_of(*, quiet: Mapping[str, Any] | None = None) -> dict[str, Mapping[str, Any]]:
    """Returns the lanes' policies; `quiet` are quiet hours of `HELD`."""
    held = {**_SMS, "quiet_hours": quiet} if quiet else _SMS
    return {
        CODES: _WEBHOOK,
        TROUBLE: {**_WEBHOOK, "trace": "trouble"},
        UNKEPT: {**_LANE, "accounts": ["hook"], "guarantee": "best_effort"},
        SMS: {**_SMS, "guarantee": "at_most_once", "dedup": {"window_ms": TTL_MS}},
        HELD: held,
    }


def accounts_of(url: str) -> dict[str, Mapping[str, Any]]:
    """Returns the two accounts; both providers can be asked what became of a call."""
    sms = {
        "provider": "aliyun_sms",
        "endpoint": f"{url}/aliyun_sms",
        "access_key_id": "simulator-id",
        "access_key_secret": "simulator-secret",
        "sign_name": "鸿雁",
        "query_lag_s": 0,
    }
    return {"hook": webhook(f"{url}/send"), "sms": sms}
