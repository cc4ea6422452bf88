"""docs/metrics.md says what the code shows, and nothing is shown that is not described."""

from __future__ import annotations

import ast
from pathlib import Path

from backends.metrics.catalogue import FAMILIES
from backends.metrics.docs_page import page
from backends.metrics.families import MetricType

ROOT = Path(__file__).parents[3]
PACKAGES = (
    *("backends", "channels", "dispatcher", "hongyan", "idempotency", "policy"),
    *("receipts", "recovery", "sending", "tracing"),
)
MAKING = ("Counter", "Gauge", "Histogram", "Summary", "Info", "Enum")


def test_the_document_is_what_the_code_says() -> None:
    stale = "docs/metrics.md is stale; run `python -m backends.metrics.docs_page > docs/metrics.md`"
    assert (ROOT / "docs" / "metrics.md").read_text("utf-8") == page(), stale


def made_by_hand(file: Path) -> bool:
    """Returns whether it takes classes of metrics from prometheus_client."""
    names = [
        alias.name
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prometheus_client")
        for alias in node.names
    ]
    return any(name in MAKING or name.endswith("MetricFamily") for name in names)


def test_no_metric_is_made_without_a_description() -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    found = {file.parent.relative_to(ROOT) for file in files if made_by_hand(file)}
    assert found == {Path("backends/metrics")}, "make it by backends.metrics.instruments"


def test_each_family_is_described_once_and_named_by_its_type() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    for family in FAMILIES:
        assert (family.type is MetricType.COUNTER) == family.name.endswith("_total"), family.name
        assert family.text.endswith("."), f"{family.name}: the meaning is a sentence"
        assert not family.watch.endswith("."), f"{family.name}: what to watch is no sentence"


def test_a_time_has_its_unit_in_its_name() -> None:
    for family in FAMILIES:
        if family.text.startswith(("Time ", "Age ")):
            assert family.name.endswith(("_seconds", "_seconds_total")), family.name
