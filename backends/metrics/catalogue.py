"""All families that any process shows."""

from __future__ import annotations

from typing import Final

from backends.metrics import (
    campaigns_families,
    console_families,
    gateway_families,
    lookback_families,
    receipts_families,
    recovery_families,
    relay_families,
    shared_families,
    worker_families,
)
from backends.metrics.families import Family

FAMILIES: Final = (
    *shared_families.FAMILIES,
    *worker_families.FAMILIES,
    *recovery_families.FAMILIES,
    *receipts_families.FAMILIES,
    *relay_families.FAMILIES,
    *gateway_families.FAMILIES,
    *lookback_families.FAMILIES,
    *campaigns_families.FAMILIES,
    *console_families.FAMILIES,
)
BY_NAME: Final = {family.name: family for family in FAMILIES}


def shown_by(process: str) -> list[Family]:
    """Returns the families of a process."""
    return [family for family in FAMILIES if process in family.shown_by]
