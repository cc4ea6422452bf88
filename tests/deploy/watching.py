"""The files for Prometheus and Grafana, as tests read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import yaml

from backends.metrics.catalogue import FAMILIES
from backends.metrics.families import MetricType
from deploy.local.layout import REPOSITORY
from hongyan_client.spool.spool import SpoolReadings

RULES: Final = REPOSITORY / "deploy" / "prometheus" / "rules.yaml"
RULES_TEST: Final = REPOSITORY / "deploy" / "prometheus" / "rules_test.yaml"
DASHBOARD: Final = REPOSITORY / "deploy" / "grafana" / "hongyan.json"
_QUOTED = re.compile(r'"[^"]*"')
_SERIES = re.compile(r"([\w:]+)\{(.*)\}")
_LABEL = re.compile(r'(\w+)="[^"]*"')
_OF_SCRAPES: Final = frozenset({"job", "instance"})
"""Labels that a scrape adds to every sample."""
_NAME = re.compile(r"\b(?:hongyan|process|python)[_:][a-z0-9_:]+")
_INTERVALS = {"$__rate_interval": "5m", "$__interval": "1m", "$__range": "1h"}
_VARIABLE = re.compile(r"\$\w+")


def rules() -> list[dict[str, Any]]:
    """Returns all rules."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Returns the alert rules by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> set[str]:
    """Returns the names that recording rules make."""
    return {rule["record"] for rule in rules() if "record" in rule}


def panels() -> Iterator[dict[str, Any]]:
    """Yields the dashboard's panels, without rows."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        if panel["type"] != "row":
            yield panel


def dashboard_expressions() -> list[str]:
    """Returns the dashboard's queries as Prometheus gets them, with Grafana's variables filled in."""
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    for name, value in _INTERVALS.items():
        found = [expression.replace(name, value) for expression in found]
    return [_VARIABLE.sub(".*", expression) for expression in found]


def metrics_of(expression: str) -> set[str]:
    """Returns the metrics that an expression names."""
    return set(_NAME.findall(_QUOTED.sub('""', expression)))


def known_metrics() -> set[str]:
    """Returns every name of a sample: those of docs/metrics.md, those that a business exports of its spool
    (docs/spool.md), and those of recording rules."""
    spool = {f"hongyan_spool_{name}" for name in SpoolReadings._fields}
    ours = {name for family in FAMILIES for name in _samples(family.name, family.type)}
    return recorded() | ours | spool


def tried_series() -> Iterator[tuple[str, set[str]]]:
    """Yields the series on which the alerts are tried: metric, names of its labels."""
    for group in yaml.safe_load(RULES_TEST.read_text("utf-8"))["tests"]:
        for one in group["input_series"]:
            found = _SERIES.fullmatch(one["series"])
            assert found, f"{one['series']} has no labels"
            yield found[1], set(_LABEL.findall(found[2]))


def scraped_labels(metric: str) -> set[str]:
    """Returns the labels of a metric's samples in Prometheus."""
    for family in FAMILIES:
        if metric in _samples(family.name, family.type):
            bound = {"le"} if metric.endswith("_bucket") else set()
            return {*family.labels, *bound, *_OF_SCRAPES}
    return set(_OF_SCRAPES)


def _samples(name: str, kind: MetricType) -> Iterable[str]:
    if kind is MetricType.HISTOGRAM:
        return (f"{name}_bucket", f"{name}_sum", f"{name}_count")
    return (name,)
