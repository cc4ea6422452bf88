"""Terms of the lanes from the texts and the workers that a real ledger has on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.settings import DatabaseSettings, Settings
from policy.loading import load_for
from tests.spark_jobs.lost.rows import HOUR_MS, LedgerRows

LANE = "sms.marketing"
LEDGER = f'[lanes."{LANE}"]\ntrace = "trouble"\n'
NO_LEDGER = f'[lanes."{LANE}"]\nguarantee = "best_effort"\ntrace = "trouble"\n'
CHANGED = 1_790_000_000_000
NOW = CHANGED + 12 * HOUR_MS
MINUTE_MS = 60_000
LEASE_MS = 30_000


def without_ledger_until(rows: LedgerRows, base: Path) -> int | None:
    """The last moment at which the lane had no ledger, after its file changed at CHANGED."""
    from hongyan.spark.policy_terms import lane_policies
    from spark_jobs.lost.terms import best_effort_until

    settings = Settings(database=DatabaseSettings(url=rows.settings.database.url), base=str(base))
    for content, at in ((NO_LEDGER, CHANGED - HOUR_MS), (LEDGER, CHANGED)):
        (base / "policy.toml").write_text(content)
        version = load_for(settings).version
        rows.insert("policy_texts", version=version, at=at, text=content)
    return best_effort_until(lane_policies(settings, rows.database).terms, NOW).get(LANE)


@pytest.mark.parametrize(
    ("worker", "until"),
    [
        # It went on for five minutes under the old file.
        (
            {
                "started_at": CHANGED - HOUR_MS,
                "heartbeat_at": CHANGED + 5 * MINUTE_MS,
                "state": "RETIRED",
            },
            CHANGED + 5 * MINUTE_MS + LEASE_MS,
        ),
        ({"started_at": CHANGED - HOUR_MS, "heartbeat_at": NOW}, NOW + LEASE_MS),
        # Its earlier life may have ended with its restart, at the latest.
        (
            {"started_at": CHANGED + 3 * MINUTE_MS, "heartbeat_at": NOW, "epoch": 2},
            CHANGED + 3 * MINUTE_MS,
        ),
        ({"started_at": CHANGED + 3 * MINUTE_MS, "heartbeat_at": NOW}, CHANGED),
        # A restart of a later day is none of the change's.
        ({"started_at": CHANGED + 2 * HOUR_MS, "heartbeat_at": NOW, "epoch": 2}, CHANGED),
        ({"started_at": CHANGED - HOUR_MS, "heartbeat_at": NOW, "lanes": "sms.notice"}, CHANGED),
        # Recovery sends nothing without a row.
        ({"started_at": CHANGED - HOUR_MS, "heartbeat_at": NOW, "kind": "recovery"}, CHANGED),
    ],
    ids=["ended", "at work", "restarted", "new", "restarted later", "other lane", "recovery"],
)
def test_a_lane_has_a_ledger_after_the_last_worker_of_the_old_file(
    rows: LedgerRows, tmp_path: Path, worker: dict[str, Any], until: int
) -> None:
    values = {"lanes": f"sms.notice,{LANE}", "lease_ms": LEASE_MS, "kind": "worker", **worker}
    rows.worker("worker-1", **values)
    assert without_ledger_until(rows, tmp_path) == until
