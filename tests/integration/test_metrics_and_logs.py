"""Metrics and logs of real processes: everything shown is described, and every line is an event."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from backends.metrics.catalogue import BY_NAME, shown_by
from backends.metrics.families import Family, MetricType
from deploy.local.stack import Stack
from tests.deploy.watching import RULES
from tests.foreign.promtool import promtool
from tests.harness import Fleet, ground_on
from tests.harness.notifications import LANE, notifications
from tests.harness.waiting import await_
from tests.harness.worker import WorkerProcess

COUNT = 40
RECEIPTS = """
[database]
url = "{url}"
[trace]
kafka = false
[log]
format = "json"
[receipts]
listen = "127.0.0.1:0"
[receipts.accounts.ali]
secret_file = "secret"
[accounts.ali]
provider = "aliyun_sms"
access_key_id = "id"
access_key_secret_file = "secret"
"""
UNLESS = {
    "hongyan_login_refused": "no provider refuses the login",
    "hongyan_rates_shared": "no account has a rate",
    "hongyan_rate_tokens": "no account has a rate",
    "hongyan_rate_workers": "no account has a rate",
    "hongyan_rate_per_s": "no account has a rate",
    "hongyan_rate_shut_seconds": "no account has a rate",
    "hongyan_lane_rate_per_s": "no account has a rate",
    "hongyan_receivers_held_total": "no provider limits a receiver",
    "hongyan_dead_letters_held": "no poison came",
    "hongyan_recovery_overdue_seconds": "another process has the duty",
    "hongyan_recovery_behind": "no lane is ordered",
    "hongyan_lost_findings": "no delivery was found lost",
    "hongyan_outcomes_waiting": "no lane announces its ends",
    "hongyan_outcomes_oldest_seconds": "no lane announces its ends",
}
"""Families that are not shown here, with the reason."""
MEASURED = {"worker": "hongyan_lag", "recovery": "hongyan_recovery_due"}
"""A family that a process shows once it has measured; the others of the same measurement come with it."""


class ReceiptsProcess(WorkerProcess):
    """A real `hongyan receipts`."""

    program: ClassVar[str] = "receipts"

    @property
    def address(self) -> str:
        """host:port of its pages."""
        started = self.events("receipts_started")
        assert started, "it has not started yet"
        return str(started[-1]["address"])

    @property
    def _id_variable(self) -> str:
        return "HONGYAN_TEST_ID"


class House(NamedTuple):
    """One process of each kind, after some deliveries."""

    fleet: Fleet
    lag_without_workers: float
    processes: dict[str, WorkerProcess]


@pytest.fixture(scope="module")
def house(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    with ground_on(stack) as ground, Fleet(ground, folder) as fleet:
        fleet.send(notifications(COUNT))
        recovery = fleet.recovery().wait_ready()
        await_(lambda: recovery.metric("group_lag", lane=LANE) > 0, what="the lag is measured")
        lag = recovery.metric("group_lag", lane=LANE)
        worker = fleet.worker().wait_ready()
        fleet.await_settled()
        worker.await_metric("settled", COUNT, outcome="SENT")
        (folder / "secret").write_text("s3cret-of-ali")
        config = folder / "receipts.toml"
        config.write_text(
            f"allow_literal_secrets = true\n{RECEIPTS.format(url=ground.database_url)}"
        )
        receipts = ReceiptsProcess("r", folder, {"HONGYAN_CONFIG": str(config)}).wait_ready()
        try:
            yield House(fleet, lag, {"worker": worker, "recovery": recovery, "receipts": receipts})
        finally:
            receipts.discard()


def requested(process: WorkerProcess, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(process.address, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def scraped(process: WorkerProcess) -> dict[str, Any]:
    """Returns the families of a scrape, by the name that docs/metrics.md uses."""
    text = requested(process, "GET", "/metrics")[2].decode()
    found = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not name.endswith("_created"):
            found[name] = family
    return found


@pytest.mark.parametrize("kind", ["worker", "recovery", "receipts"])
def test_a_process_shows_the_metrics_that_the_page_describes(house: House, kind: str) -> None:
    described = {family.name for family in shown_by(kind)}
    process = house.processes[kind]
    if kind in MEASURED:
        await_(lambda: MEASURED[kind] in scraped(process), what=f"{MEASURED[kind]} is shown")
    shown = scraped(process)
    assert set(shown) <= described, "shown, and not described"
    assert described - set(shown) <= set(UNLESS), "described, and not shown"
    for name, family in shown.items():
        assert_as_described(family, BY_NAME[name])


def assert_as_described(shown: Any, family: Family) -> None:
    assert shown.type == family.type, family.name
    if family.name.startswith("hongyan_"):
        assert shown.documentation == family.text
    bound = {"le"} if family.type is MetricType.HISTOGRAM else set()
    for sample in shown.samples:
        assert set(sample.labels) - bound == set(family.labels), family.name
    if bound:
        bounds = {float(s.labels["le"]) for s in shown.samples if "le" in s.labels}
        assert bounds <= {*family.buckets, float("inf")}, family.name


def test_each_delivery_counts_from_its_creation_to_the_provider(house: House) -> None:
    worker = house.processes["worker"]
    assert worker.metric("delivery_seconds_count", lane=LANE) == COUNT
    assert worker.metric("call_seconds_count", lane=LANE, account="demo") == COUNT
    called = worker.metric("call_seconds_sum", lane=LANE)
    assert worker.metric("delivery_seconds_sum", lane=LANE) > called, "they waited for the worker"


def test_the_lag_is_measured_without_any_worker(house: House) -> None:
    assert house.lag_without_workers == COUNT


def test_the_build_is_named(house: House) -> None:
    for kind, process in house.processes.items():
        assert process.metric("build_info", process=kind) == 1


def test_a_healthy_fleet_raises_no_alert_of_prometheus(house: House, tmp_path: Path) -> None:
    """The recorded metrics of all processes, as Prometheus has them after twenty quiet minutes."""
    series = [one for kind, process in house.processes.items() for one in recorded(kind, process)]
    firing = {"expr": 'count(ALERTS{alertstate="firing"})', "exp_samples": []}
    replay = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {**firing, "eval_time": "20m"},
                    {
                        "expr": 'count(hongyan_build_info{process=~"worker|recovery|receipts"})',
                        "eval_time": "20m",
                        "exp_samples": [{"labels": "{}", "value": 3}],
                    },
                ],
            }
        ],
    }
    file = tmp_path / "replay.yaml"
    file.write_text(json.dumps(replay))
    code, said = promtool("test", "rules", file)
    assert code == 0, said


def recorded(kind: str, process: WorkerProcess) -> Iterator[dict[str, str]]:
    """Yields each sample as a series that keeps its value."""
    for family in scraped(process).values():
        for sample in family.samples:
            labels = {**sample.labels, "job": "hongyan", "instance": kind}
            shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
            yield {"series": f"{sample.name}{{{shown}}}", "values": f"{sample.value:f}x30"}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
@pytest.mark.parametrize("kind", ["worker", "recovery", "receipts"])
def test_head_answers_as_get_without_a_body(house: House, kind: str, path: str) -> None:
    process = house.processes[kind]
    (status, headers, body), wanted = (
        requested(process, "HEAD", path),
        requested(process, "GET", path),
    )
    headers = {name.lower(): value for name, value in headers.items()}
    assert (status, body) == (wanted[0], b"")
    assert headers["content-type"] == {k.lower(): v for k, v in wanted[1].items()}["content-type"]


@pytest.mark.parametrize("kind", ["worker", "recovery", "receipts"])
def test_sigusr1_logs_the_stacks_of_all_threads(house: House, kind: str) -> None:
    process = house.processes[kind]
    process._send(signal.SIGUSR1)
    await_(lambda: process.events("stack_dump"), what="the stacks are in the log")
    stacks = process.events("stack_dump")[0]["stacks"]
    assert "--- MainThread" in stacks
    assert {"worker": "--- settle", "recovery": "--- heart", "receipts": "--- matcher"}[
        kind
    ] in stacks
    assert process.running


@pytest.mark.parametrize("kind", ["worker", "recovery", "receipts"])
def test_every_line_is_an_event_with_its_process(house: House, kind: str) -> None:
    process = house.processes[kind]
    lines = [json.loads(line) for line in process.log_text().splitlines()]
    assert lines
    assert {line["process"] for line in lines} == {kind}
    named = [line for line in lines if "worker" in line]
    assert {"worker": process.id, "recovery": process.id}.get(kind, named[0]["worker"]) in {
        line["worker"] for line in named
    }
    assert all(line["event"] and line["level"] and line["time"] for line in lines)


def test_the_end_is_an_event_too(tmp_path: Path) -> None:
    """Also the sentence of a process that cannot start."""
    config = tmp_path / "hongyan.toml"
    config.write_text(
        f'[database]\nurl = "sqlite:///{tmp_path}/none.db"\n[log]\nformat = "json"\n'
        "[trace]\nkafka = false\n[accounts.a]\nprovider = 'null'\n"
    )
    process = ReceiptsProcess("none", tmp_path, {"HONGYAN_CONFIG": str(config)})
    assert process.wait() == 2
    (last,) = [json.loads(line) for line in process.log_text().splitlines()]
    assert (last["event"], last["level"], last["process"]) == ("ended", "error", "receipts")
    assert "receipts.accounts" in last["text"]
