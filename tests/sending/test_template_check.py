"""Templates are filled in before a send as a worker would fill them in."""

from __future__ import annotations

from pathlib import Path

import pytest

from message.envelope import EnvelopeError, Notification, Template
from policy.templates.loading import load
from policy.templates.templates import Templates
from sending.template_check import TemplateCheck
from tests.harness.notifications import notification

EXAMPLES = Path(__file__).parents[2] / "examples" / "templates.toml"


def named(name: str, lane: str = "sms.notice", **params: object) -> Notification:
    return notification(lane, template=Template(name, dict(params)), content=None)


@pytest.fixture
def check() -> TemplateCheck:
    return TemplateCheck(load(EXAMPLES))


def test_a_template_of_ours_is_filled_in(check: TemplateCheck) -> None:
    rendered = check(named("login-code", code="4711"))
    assert rendered is not None
    assert rendered.template == Template("SMS_123", {"code": "4711"})
    assert check(notification()) is None
    assert check.warnings == []


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (named("login-code"), "variable_missing"),
        (named("login-code", code="1", cod="2"), "variable_surplus"),
        (named("login-code", code=4711), "variable_type"),
        (named("order-paid", order="1", total=1), "template_channel"),
        (named("order-pad", "email.notice", order="1", total=1), "template_unknown"),
    ],
)
def test_a_template_that_the_worker_refuses_is_refused(
    check: TemplateCheck, one: Notification, code: str
) -> None:
    with pytest.raises(EnvelopeError) as caught:
        check(one)
    assert (caught.value.code, caught.value.path) == (code, "$.template")


def test_a_name_close_to_one_of_ours_is_a_warning_once(check: TemplateCheck) -> None:
    for _ in range(2):
        assert check(named("login-cod", code="4711")) is None
    assert check(named("SMS_154950909", code="4711")) is None
    (warning,) = check.warnings
    assert "did you mean 'login-code'?" in warning


def test_without_a_file_nothing_is_refused_and_the_gap_is_named() -> None:
    check = TemplateCheck(Templates())
    assert check(named("SMS_1")) is None
    assert check.warnings == []
    assert check(named("order-paid", "email.notice")) is None
    (warning,) = check.warnings
    assert "no templates.toml" in warning
