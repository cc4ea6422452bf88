"""An alert is told once in its window and always counted."""

from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from recovery.alerts import Alerts


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_same_trouble_is_told_once_in_a_window_with_the_number_kept_back() -> None:
    time, registry = Time(), CollectorRegistry()
    alerts = Alerts(registry, 60.0, time)
    with capture_logs() as logs:
        for number in range(5):
            alerts.parked("sms.notice", f"attempts_spent:code-{number}", f"k{number}")
        alerts.parked("sms.notice", "unproven", "other")
        alerts.parked("sms.marketing", "attempts_spent", "lane")
        time.now = 60.0
        alerts.parked("sms.notice", "attempts_spent:x", "k9")
    told = [(log["lane"], log["reason"], log["delivery"], log["more"]) for log in logs]
    assert told == [
        ("sms.notice", "attempts_spent", "k0", 0),
        ("sms.notice", "unproven", "other", 0),
        ("sms.marketing", "attempts_spent", "lane", 0),
        ("sms.notice", "attempts_spent", "k9", 4),
    ]
    labels = {"rule": "parked", "lane": "sms.notice", "reason": "attempts_spent"}
    assert registry.get_sample_value("hongyan_alerts_total", labels) == 6
