import argparse
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import __main__ as program
from deploy.local.errors import PortTaken, StackError
from deploy.local.layout import Layout
from deploy.local.stack import Stack, Status, reserved_base


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Stack]:
    with reserved_base(1) as base:
        yield Stack(Layout(tmp_path / "stack", base))


def test_status_of_a_stack_that_never_ran(idle: Stack) -> None:
    assert [status.state for status in idle.status()] == ["stopped"] * 3


def test_stopping_what_does_not_run_is_no_error(idle: Stack) -> None:
    assert idle.down() == []
    idle.stop("redis")


def test_killing_what_does_not_run_is_told(idle: Stack) -> None:
    with pytest.raises(StackError, match=r"redis does not run\."):
        idle.kill("redis")


def test_an_unknown_server_is_refused_with_those_there_are(idle: Stack) -> None:
    with pytest.raises(StackError, match="no mongo in this stack, only kafka-1, postgres, redis"):
        idle.start("mongo")


def test_a_taken_port_is_named(idle: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.local.stack._PORT_S", 0.0)
    monkeypatch.setattr("deploy.local.system.need", lambda *_: None)
    port = idle.layout.redis_port
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(PortTaken, match=f"port {port}, which redis needs"),
    ):
        idle.start("redis")


def test_a_private_stack_keeps_off_taken_ports() -> None:
    with reserved_base(1) as base:
        port = Layout(Path("/"), base).postgres_port
    with socket.create_server(("127.0.0.1", port)), reserved_base(1) as other:
        assert other != base


def test_two_who_ask_at_once_get_different_ports() -> None:
    with reserved_base(1) as one, reserved_base(1) as other, reserved_base(3) as third:
        assert len({one, other, third}) == 3


def test_a_table_has_a_column_for_each_thing() -> None:
    shown = program.table([Status("redis", "127.0.0.1:1", "running", 42, 7 << 20)])
    head, row = shown.splitlines()
    assert head.split() == ["SERVICE", "STATE", "ADDRESS", "PID", "MEMORY"]
    assert row.split() == ["redis", "running", "127.0.0.1:1", "42", "7", "MiB"]


def test_status_as_json_is_for_programs(idle: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.status(idle, argparse.Namespace(json=True)) == 1
    shown = json.loads(capsys.readouterr().out)
    assert {row["service"] for row in shown} == set(idle.names)


def test_settings_are_a_line_each(idle: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.env(idle, argparse.Namespace()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("=")[0] for line in lines] == [
        "HONGYAN_KAFKA__BOOTSTRAP",
        "HONGYAN_DATABASE__URL",
        "HONGYAN_REDIS__URL",
    ]
