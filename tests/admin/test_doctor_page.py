"""The page Doctor: the last result, a run by an operator with its row in the audit, one at a time."""

from collections.abc import Callable
from typing import Any

import pytest

from admin.access import Role
from admin.audit.journal import AuditFilter
from admin.pages import doctor
from admin.parts import ConsoleParts
from producer.doctor.diagnosis import Diagnosis, diagnose
from producer.doctor.rule_list import RULES
from producer.doctor.runs import KEPT, DoctorRuns
from tests.producer.doctor.healthy import LANE, facts, with_topic

SICK = diagnose(with_topic(cleanup_policy="compact"), RULES)
BLIND = diagnose(facts(cluster=None, missing={"cluster": "<b>Kafka</b> is away"}), RULES)


@pytest.fixture
def operator(browser: Callable[[], Any], user: Callable[..., int]) -> Any:
    user("lin", {Role.OPERATOR: ("*",)})
    one = browser()
    one.sign_in("lin")
    return one


def answering(monkeypatch: pytest.MonkeyPatch, found: Diagnosis) -> None:
    monkeypatch.setattr(doctor, "examine", lambda *_: found)


def test_a_run_is_shown_with_its_time_and_stands_in_the_audit(
    parts: ConsoleParts, operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Doctor has not run yet" in operator.get("/doctor").text
    answering(monkeypatch, SICK)
    done = operator.post("/doctor", "/doctor", reason="before the sale")
    assert (done.status_code, done.headers["location"]) == (303, "/doctor")
    page = operator.get("/doctor").text
    for part in ("topic-cleanup-policy", LANE, "cleanup.policy=compact", "kafka-configs.sh", "lin"):
        assert part in page
    (row,) = parts.journal.page(AuditFilter(action="doctor.run"), 5)
    assert (row.person, row.subject) == ("lin", "1 errors, 0 not known")
    assert row.reason == "before the sale"


def test_a_run_without_a_reason_examines_nothing(
    operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_given: object) -> Diagnosis:
        raise AssertionError("it ran without a reason")

    monkeypatch.setattr(doctor, "examine", never)
    assert operator.post("/doctor", "/doctor").status_code == 422


def test_what_is_not_known_is_no_health_and_no_markup(
    operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, BLIND)
    operator.post("/doctor", "/doctor", reason="look")
    page = operator.get("/doctor").text
    assert "Not known: " in page
    assert "&lt;b&gt;Kafka" in page
    assert "No error." not in page


def test_a_second_run_at_the_same_time_is_refused(
    operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, SICK)
    with doctor._running:
        refused = operator.post("/doctor", "/doctor", reason="impatient")
    assert refused.status_code == 422
    assert "A run is under way" in refused.text
    assert operator.post("/doctor", "/doctor", reason="again").status_code == 303


def test_a_viewer_neither_sees_nor_runs_it(
    browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    user("mei", {Role.VIEWER: ("*",)})
    one = browser()
    one.sign_in("mei")
    assert one.get("/doctor").status_code == 403
    assert one.post("/doctor", reason="curious").status_code == 403


def test_the_newest_results_are_kept_and_a_blind_run_forgets_no_partitions(
    parts: ConsoleParts,
) -> None:
    runs = DoctorRuns(parts.databases.primary, parts.databases.clock)
    assert runs.partitions() == {}
    runs.store(SICK, host="h", person="lin")
    for _ in range(KEPT + 3):
        runs.store(BLIND, host="h", person="lin")
    assert runs.partitions()[LANE] == 12
    with parts.databases.primary.begin() as connection:
        rows = connection.exec_driver_sql("SELECT count(*) FROM doctor_runs").scalar_one()
    assert rows == KEPT
    last = runs.last()
    assert last is not None
    assert [gap.reason for gap in last.diagnosis.unknown][:1] == ["<b>Kafka</b> is away"]


def test_a_reader_of_chinese_reads_the_rules_in_chinese(
    operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, SICK)
    operator.post("/doctor", "/doctor", reason="look")
    page = operator.get("/doctor", headers={"accept-language": "zh"}).text
    assert "压实只保留每个键的最新记录" in page
    assert "Compaction keeps" not in page
    assert "cleanup.policy=compact" in page
