"""Logs: JSON for machines, no secret for anybody."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest
import structlog

from backends.logs import HIDDEN, configure, redact
from backends.settings import LogSettings


@pytest.fixture(autouse=True)
def _untouched_afterwards() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers = handlers
    root.setLevel(level)


def logged(settings: LogSettings, **fields: object) -> str:
    stream = io.StringIO()
    configure(settings, stream=stream)
    structlog.get_logger().info("something", **fields)
    return stream.getvalue()


def test_without_a_terminal_every_event_is_one_line_of_json() -> None:
    entry = json.loads(logged(LogSettings(), lane="sms.notice", text="鸿雁"))
    assert (entry["event"], entry["level"], entry["text"]) == ("something", "info", "鸿雁")
    assert entry["time"].endswith("Z")


def test_the_console_form_is_there_on_demand() -> None:
    assert "lane=sms.notice" in logged(LogSettings(format="console"), lane="sms.notice")


def test_what_is_below_the_level_is_not_logged() -> None:
    assert logged(LogSettings(level="warning")) == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"password": "hunter2"},
        {"api_key": "hunter2"},
        {"Authorization": "Bearer hunter2"},
        {"account": {"client_secret": "hunter2"}},
        {"accounts": [{"token": "hunter2"}]},
        {"url": "postgresql://me:hunter2@db/hongyan"},
        {"cause": "cannot reach redis://:hunter2@cache:6379"},
        {"cause": "cannot reach postgresql://me:Zm9v/hunter2@db/hongyan, tried 3 times"},
        {"cause": "cannot reach redis://:p@hunter2@cache:6379"},
        {"client": {"sasl.oauthbearer.assertion.private.key.passphrase": "hunter2"}},
        {"client": {"sasl.oauthbearer.assertion.private.key.pem": "hunter2"}},
        {"cause": "GET https://h/cgi-bin/gettoken?corpid=ww1&corpsecret=hunter2 failed"},
        {"url": "/cgi-bin/message/send?access_token=hunter2&debug=1"},
    ],
)
def test_no_secret_is_logged_at_any_depth(fields: dict[str, object]) -> None:
    shown = json.dumps(dict(redact(None, "info", dict(fields))))
    assert "hunter2" not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_local_variable(form: Literal["json", "console"]) -> None:
    stream = io.StringIO()
    configure(LogSettings(format=form), stream=stream)
    held = "hunter" + "2"
    try:
        raise KeyError(len(held))
    except KeyError:
        structlog.get_logger().exception("broke")
    assert "KeyError" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "console"])
def test_the_text_of_an_exception_shows_no_secret(form: Literal["json", "console"]) -> None:
    stream = io.StringIO()
    configure(LogSettings(format=form), stream=stream)
    try:
        try:
            raise OSError("no route to redis://:hunter2@cache")
        except OSError as exc:
            raise RuntimeError("GET /gettoken?corpsecret=hunter2 failed") from exc
    except RuntimeError:
        structlog.get_logger().exception("broke")
    assert "hunter2" not in stream.getvalue()
    assert f"redis://:{HIDDEN}@cache" in stream.getvalue()
    assert "corpsecret=" in stream.getvalue()


def test_what_is_no_secret_stays_as_it_is() -> None:
    event = {"event": "x", "url": "http://h:80/p", "key": "a1", "token": "", "count": 3}
    assert redact(None, "info", dict(event)) == event


def test_what_a_library_logs_is_one_line_of_json_among_the_others() -> None:
    stream = io.StringIO()
    configure(LogSettings(), stream=stream)
    try:
        raise OSError("no route to redis://:hunter2@cache")
    except OSError:
        logging.getLogger("some.library").warning("lost %s", "it", exc_info=True)
    logging.getLogger("some.library").info("below the level")
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["logger"], entry["text"]) == (
        "library",
        "some.library",
        "lost it",
    )
    assert entry["level"] == "warning"
    assert entry["exception"][0]["exc_value"] == f"no route to redis://:{HIDDEN}@cache"
