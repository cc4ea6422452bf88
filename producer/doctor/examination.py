"""One run of doctor: gathers the facts and holds them against the rules."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from backends.settings import Settings
from policy.schema import Policy
from producer.doctor.diagnosis import Diagnosis, diagnose
from producer.doctor.gathering import Inquiry, gather
from producer.doctor.rule_list import RULES


def examine(
    settings: Settings,
    policy: Policy,
    inquiry: Inquiry,
    partitions_before: Mapping[str, int] | None = None,
) -> Diagnosis:
    """Returns the result of one run, with its time by this host's clock. Raises SettingsError."""
    at_ms, begun = time.time_ns() // 1_000_000, time.monotonic()
    facts = gather(settings, policy, inquiry, partitions_before)
    found = diagnose(facts, RULES)
    took_ms = round((time.monotonic() - begun) * 1_000)
    return msgspec.structs.replace(found, at_ms=at_ms, took_ms=took_ms)
