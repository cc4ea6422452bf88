"""librdkafka's log lines: passed on, and no flood."""

import logging

from structlog.testing import capture_logs

from backends.kafka.client_logs import ClientLog


def test_the_same_complaint_is_said_once_in_a_while() -> None:
    now = [0.0]
    log = ClientLog(monotonic=lambda: now[0])
    with capture_logs() as logs:
        for moment in (0.0, 1.0, 29.0, 31.0):
            now[0] = moment
            log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "refused")
    assert [entry["text"] for entry in logs] == ["refused", "refused"]
    assert {entry["log_level"] for entry in logs} == {"warning"}


def test_chatter_is_not_passed_on() -> None:
    with capture_logs() as logs:
        ClientLog().log(logging.WARNING, "%s [%s] %s", "CONFWARN", "rdkafka#producer-1", "ignored")
    assert logs == []


def test_a_quiet_client_says_nothing() -> None:
    with capture_logs() as logs:
        ClientLog(quiet=True).log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", "x")
    assert logs == []
