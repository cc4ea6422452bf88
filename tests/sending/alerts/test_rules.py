"""When a person is called, number by number."""

from __future__ import annotations

from backends.settings import AlertSettings
from sending.alerts.rules import RuleEvaluator, Sample, dropped, parked, rules_of

SETTINGS = AlertSettings(uncommitted_s=10, lag=100, breaker_s=60)
LANE = {"lane": "sms.notice"}


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def looked(*samples: Sample, settings: AlertSettings = SETTINGS) -> list[tuple[str, str, str, int]]:
    found = RuleEvaluator(rules_of(settings), Time()).look(samples)
    return [(alert.rule, alert.lane, alert.about, count) for alert, count in found]


def test_a_gauge_calls_from_its_limit_on() -> None:
    uncommitted = "hongyan_oldest_uncommitted_seconds"
    assert looked(Sample(uncommitted, LANE, 9.9), Sample("hongyan_lag", LANE, 99)) == []
    assert looked(Sample(uncommitted, LANE, 10), Sample("hongyan_lag", LANE, 100)) == [
        ("oldest_uncommitted", "sms.notice", "", 1),
        ("lag", "sms.notice", "", 1),
    ]


def test_a_threshold_of_zero_switches_its_rule_off() -> None:
    off = AlertSettings(uncommitted_s=0, lag=0, breaker_s=0)
    samples = (
        Sample("hongyan_oldest_uncommitted_seconds", LANE, 1e9),
        Sample("hongyan_lag", LANE, 1e9),
        Sample("hongyan_breaker_state", {**LANE, "account": "main"}, 2),
    )
    assert looked(*samples, settings=off) == []


def test_held_poison_calls_with_its_reason() -> None:
    held = Sample("hongyan_dead_letters_held", {**LANE, "reason": "not_json"}, 3)
    assert looked(held) == [("dead_letters_held", "sms.notice", "not_json", 1)]


def test_a_breaker_calls_once_it_has_not_closed_for_long_enough() -> None:
    time = Time()
    looking = RuleEvaluator(rules_of(SETTINGS), time)

    def look(state: int) -> list[str]:
        sample = Sample("hongyan_breaker_state", {**LANE, "account": "main"}, state)
        return [alert.about for alert, _ in looking.look([sample])]

    assert look(2) == []
    time.now = 59.0
    assert look(1) == [], "half open is not closed, and not yet long enough"
    time.now = 60.0
    assert look(2) == ["main"]
    assert look(0) == []
    time.now = 110.0
    assert look(2) == [], "it closed in between: counted from anew"


def test_a_fault_to_mend_names_its_template_and_what_is_wrong_with_it() -> None:
    missing = "variable_missing: template 'welcome': code: is missing; it must be string"
    alert = parked("sms.notice", missing, "welcome")
    assert alert.subject == ("parked", "sms.notice variable_missing welcome")
    assert missing.partition(": ")[2] in alert.text
    assert dropped("sms.notice", missing, "welcome")[:3] == ("dropped", *alert[1:3])
    account = parked("sms.notice", "unknown_account: the lane has no account b any more", "welcome")
    assert account.subject == ("parked", "sms.notice unknown_account"), "no fault of the template"
    assert "account b" in account.text


def test_names_that_are_in_no_file_are_one_alert_however_many_there_are() -> None:
    reasons = [(f"template_unknown: there is no template 't{n}'", f"t{n}") for n in range(50)]
    alerts = [parked("email.notice", reason, name) for reason, name in reasons]
    assert {alert.subject for alert in alerts} == {("parked", "email.notice template_unknown")}
    assert "'t49'" in alerts[-1].text


def test_each_rise_of_what_kafka_removed_calls() -> None:
    looking = RuleEvaluator(rules_of(SETTINGS), Time())

    def look(removed: float, anew: float) -> list[tuple[str, str, int]]:
        samples = [
            Sample("hongyan_records_removed_total", LANE, removed),
            Sample("hongyan_logs_begun_anew_total", LANE, anew),
        ]
        return [(alert.rule, alert.lane, count) for alert, count in looking.look(samples)]

    assert look(0, 0) == []
    assert look(7, 0) == [("records_removed", "sms.notice", 7)]
    assert look(7, 1) == [("log_began_anew", "sms.notice", 1)]
    assert look(7, 1) == []


def test_spent_retries_are_a_rule_of_their_own() -> None:
    assert parked("sms.notice", "attempts_spent:http_429").rule == "retries_spent"
    assert parked("sms.notice", "horizon_over:http_429").rule == "retries_spent"
    assert parked("sms.notice", "unproven").subject == ("parked", "sms.notice unproven")


def test_what_goes_on_is_no_new_alert_and_what_comes_back_is() -> None:
    looking = RuleEvaluator(rules_of(SETTINGS), Time())

    def look(lag: float) -> list[int]:
        return [count for _, count in looking.look([Sample("hongyan_lag", LANE, lag)])]

    assert [look(lag) for lag in (100, 200, 0, 100)] == [[1], [0], [], [1]]


def test_a_process_that_refused_a_policy_calls_and_lanes_that_keep_theirs_do() -> None:
    refused, kept = (
        Sample("hongyan_policy_refused", {}, 1),
        Sample("hongyan_policy_lanes_kept", {}, 2),
    )
    assert looked(refused, kept) == [
        ("policy_refused", "", "", 1),
        ("policy_lanes_kept", "", "", 1),
    ]
    assert looked(refused._replace(value=0), kept._replace(value=0)) == []


def test_a_refused_login_calls_and_says_what_to_check() -> None:
    looking = RuleEvaluator(rules_of(AlertSettings()), lambda: 0.0)
    sample = Sample("hongyan_login_refused", {"account": "main"}, 1.0)
    ((alert, count),) = looking.look([sample])
    assert (alert.rule, alert.lane, alert.about, count) == ("login_refused", "", "main", 1)
    assert "id and secret" in alert.text
    assert looking.look([sample])[0][1] == 0  # it goes on
