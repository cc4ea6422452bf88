"""Doctor on the recommended set-up, alive: three brokers, PostgreSQL and Redis; then one killed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from backends.kafka.topics import Wish, apply
from backends.settings import DatabaseSettings, KafkaSettings, RedisSettings, Settings
from deploy.local.layout import REPOSITORY
from deploy.local.stack import private_stack
from idempotency.sql_ledger import upgrade
from message.vocabulary import LANES
from policy.schema import Policy
from producer.doctor.diagnosis import Diagnosis
from producer.doctor.examination import examine
from producer.doctor.gathering import Inquiry
from producer.doctor.rule import Severity
from tests.harness import await_


def of_weight(found: Diagnosis, severity: Severity) -> list[tuple[str, str]]:
    return [(one.rule, one.seen) for one in found.findings if one.severity is severity]


@pytest.mark.chaos
def test_nothing_is_found_on_three_brokers_until_one_is_killed() -> None:
    # Not below /tmp, where doctor rightly wants no broker's log.
    with (
        tempfile.TemporaryDirectory(prefix=".doctor-", dir=REPOSITORY) as folder,
        private_stack(Path(folder), brokers=3) as stack,
    ):
        one = Settings(
            kafka=KafkaSettings(bootstrap=stack.bootstrap, group_instance_id="w-1"),
            database=DatabaseSettings(url=stack.database_url),
            redis=RedisSettings(url=stack.redis_url),
        )
        upgrade(one)
        apply(one.kafka, LANES, Wish(partitions=3, keep_days=8))
        found = examine(one, Policy(), Inquiry(grace_s=45))
        assert of_weight(found, Severity.ERROR) == []
        assert found.unknown == []
        assert of_weight(found, Severity.WARNING) == []
        stack.kill("kafka-3")

        def behind() -> bool:
            seen = examine(one, Policy(), Inquiry(grace_s=45)).findings
            return any(finding.rule == "topic-in-sync-now" for finding in seen)

        await_(behind, what="doctor sees the copies that are missing", timeout=60)
