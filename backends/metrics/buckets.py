"""Upper bounds of histogram buckets, the same for every process: so that dashboards can add them up."""

from __future__ import annotations

from typing import Final

SECONDS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0),
)
"""From a call to a delivery that waited for a day."""
BATCHES: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0)
"""Rows in one statement."""
