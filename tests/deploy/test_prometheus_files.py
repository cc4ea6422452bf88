"""Rules and dashboard, judged by promtool and by the table of metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from tests.deploy.watching import (
    DASHBOARD,
    RULES,
    RULES_TEST,
    alerts,
    dashboard_expressions,
    known_metrics,
    metrics_of,
    panels,
    rules,
    scraped_labels,
    tried_series,
)
from tests.foreign.promtool import promtool

TRIED = re.compile(r'alertname="(\w+)"')


def test_promtool_accepts_the_rules() -> None:
    code, said = promtool("check", "rules", RULES)
    assert code == 0, said
    assert f"{len(rules())} rules found" in said


def test_each_alert_is_silent_first_and_fires_then() -> None:
    code, said = promtool("test", "rules", RULES_TEST)
    assert code == 0, said


def test_each_alert_is_tried_twice() -> None:
    groups = yaml.safe_load(RULES_TEST.read_text("utf-8"))["tests"]
    tried = [
        (TRIED.findall(one["expr"])[0], bool(one["exp_samples"]))
        for group in groups
        for one in group["promql_expr_test"]
    ]
    assert sorted(tried) == sorted((name, fires) for name in alerts() for fires in (False, True))


def test_the_series_that_try_the_alerts_have_all_labels_of_a_scrape() -> None:
    for metric, labels in tried_series():
        assert labels == scraped_labels(metric), metric


def test_a_rule_that_names_no_metric_of_ours_would_be_found() -> None:
    assert metrics_of('rate(hongyan_call_seconds_bucket{lane="hongyan_x"}[5m])') == {
        "hongyan_call_seconds_bucket"
    }
    assert "hongyan_settled" not in known_metrics()


def test_the_rules_name_known_metrics_alone() -> None:
    for rule in rules():
        found = metrics_of(rule["expr"])
        assert found, rule
        assert found <= known_metrics(), rule["expr"]


def test_an_alert_has_a_severity_and_a_section_of_the_runbook() -> None:
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("page", "ticket"), name
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{name.lower()}"
        assert rule["annotations"]["summary"], name
        assert rule["annotations"]["description"].endswith("."), name


def test_the_dashboard_names_known_metrics_alone() -> None:
    for expression in dashboard_expressions():
        found = metrics_of(expression)
        assert found, expression
        assert found <= known_metrics(), expression


def test_promtool_parses_every_query_of_the_dashboard(tmp_path: Path) -> None:
    made = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(dashboard_expressions())
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": made}]}))
    code, said = promtool("check", "rules", file)
    assert code == 0, said
    assert f"{len(made)} rules found" in said
    made[0]["expr"] = "sum by (lane (rate(hongyan_settled_total[5m]))"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": made}]}))
    assert promtool("check", "rules", file)[0] != 0, "a query that is wrong is found"


def test_the_dashboard_has_no_data_source_of_its_own_and_no_panel_twice() -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        assert {t["datasource"]["uid"] for t in panel["targets"]} == {"${datasource}"}
        assert len({t["refId"] for t in panel["targets"]}) == len(panel["targets"])
