"""A machine that is not ready gets one sentence that says what to do."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import kafka, layout
from deploy.local.errors import NoKafkaJars, PortTaken, StackError
from deploy.local.layout import REPOSITORY, Layout
from deploy.local.simulator_server import SimulatorServer
from deploy.local.stack import Stack, reserved_base

BOOTSTRAP = REPOSITORY / "deploy" / "local" / "bootstrap.sh"


def programs(folder: Path, **made: str) -> str:
    """A PATH with the shell's own programs and these, and with nothing else."""
    folder.mkdir()
    for name in ("bash", "dirname", "cut", "env", "sh"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    for name, text in made.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_no_java_and_no_way_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path / "bin"))
    with reserved_base(1) as base:
        failed = Stack(Layout(tmp_path / "stack", base)).up(only=["kafka-1"])
    assert list(failed) == ["kafka-1"]
    assert failed["kafka-1"].startswith("install default-jre-headless and run this again")


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path / "bin", mvn="echo no route to host; exit 1"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(
        NoKafkaJars, match=r"could not be fetched .* check the network and run this"
    ):
        kafka.jars(lambda _line: None, tmp_path)
    assert "no route to host" in (tmp_path / "maven.log").read_text()


def test_a_taken_port_of_the_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr("deploy.local.stack._PORT_S", 0.0)
    with reserved_base(1) as base:
        stack = Stack(Layout(tmp_path / "stack", base), with_simulator=True)
        port = stack.layout.simulator_ports["smtp"]
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(PortTaken, match=f"port {port}, which simulator needs"),
        ):
            stack.start("simulator")


def test_a_simulator_without_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.local.simulator_server.PROGRAMS", tmp_path)
    with pytest.raises(StackError, match="run `make venv` first"):
        SimulatorServer(Layout(tmp_path)).prepare(lambda _line: None)


def test_a_stack_of_another_version(tmp_path: Path) -> None:
    with reserved_base(1) as base:
        stack = Stack(Layout(tmp_path, base))
        newer = {**layout.record(stack.layout), "version": layout.VERSION + 1}
        (tmp_path / "stack.json").write_text(json.dumps(newer))
        with pytest.raises(StackError, match=r"another version of Hongyan .*down --wipe"):
            stack.up()
        stack.down(wipe=True)  # the way out
        layout.check_record(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"port_base": 19000, "brokers": 1}', '{"version": "x"}']
)
def test_a_record_without_a_version_is_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    layout.check_record(tmp_path)


def test_our_own_record_has_the_version(tmp_path: Path) -> None:
    layout.write_record(Layout(tmp_path))
    assert json.loads((tmp_path / "stack.json").read_text())["version"] == layout.VERSION


def test_a_python_that_is_too_old_for_the_stack() -> None:
    program = "import sys; sys.version_info = (3, 9, 2, 'final', 0); import deploy.local"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "hongyan: Python 3.9 is too old; name 3.11 or newer: `make up PYTHON=python3.12`."
    ]


def test_no_python_that_is_new_enough(tmp_path: Path) -> None:
    """In a folder of its own: there it could make no environment of ours."""
    script = tmp_path / "deploy" / "local" / "bootstrap.sh"
    script.parent.mkdir(parents=True)
    shutil.copy(BOOTSTRAP, script)
    done = subprocess.run(
        ["bash", str(script)],
        env={"PATH": programs(tmp_path / "bin", python3="exit 1")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    way_out = "install one, or name it with PYTHON=/path/to/python3."
    assert done.stderr == f"hongyan: no Python 3.11 or newer was found; {way_out}\n"
    assert not (tmp_path / ".venv").exists()
