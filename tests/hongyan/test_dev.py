"""`hongyan dev`: what it writes, what it refuses, and how it keeps its processes running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from backends.settings import load
from channels.registry import load_accounts
from deploy.local.layout import REPOSITORY, Layout
from deploy.local.simulator_server import addresses, to_paste, write_config
from hongyan.dev import config_files
from hongyan.dev.environment import CHANNELS, EmbeddedWorld, lanes, locked
from hongyan.dev.process_tree import ProcessTree
from hongyan.dev.supervision import MOST_FAILURES, Supervision
from hongyan.errors import NotDone
from simulator import spawn
from tests.harness.waiting import await_
from tests.hongyan.conftest import PROGRAM, Run

END_S = 40.0


def test_marked_lines_get_their_addresses_and_no_other_does() -> None:
    text = (
        'url = "x"  # set at each start\n[kafka]\nbootstrap = ""  # set at each start\nn = 1\n'
        '[redis]\nurl = "mine"\n'
    )
    made = config_files.with_addresses(
        text, {("kafka", "bootstrap"): "a:1", ("redis", "url"): "redis://b", ("kafka", "n"): "2"}
    )
    assert tomllib.loads(made) == {
        "url": "x",
        "kafka": {"bootstrap": "a:1", "n": 1},
        "redis": {"url": "mine"},
    }
    assert config_files.with_addresses(made, {("kafka", "bootstrap"): "c:2"}).count("a:1") == 0


def test_a_persons_lines_and_files_stay(tmp_path: Path) -> None:
    made = write_config(Layout(tmp_path, 20_000))
    made.write_text(made.read_text() + '\n[accounts.mine]\nprovider = "null"\n')
    (tmp_path / "policy.toml").write_text("# mine\n")
    write_config(Layout(tmp_path, 21_000))
    settings = load(made, environ={})
    assert settings.kafka.bootstrap == "127.0.0.1:21092"
    assert settings.accounts["mine"]["provider"] == "null"
    assert (tmp_path / "policy.toml").read_text() == "# mine\n"


def test_every_address_has_its_marked_line(tmp_path: Path) -> None:
    """A key without a line would keep an empty address, and nobody would see why."""
    layout = Layout(tmp_path, 20_000)
    data = tomllib.loads(write_config(layout).read_text())
    for (table, key), value in addresses(layout).items():
        found: Any = data
        for part in table.split("."):
            found = found[part]
        assert found[key] == value, f"[{table}] {key}"


def test_the_configuration_is_one_that_every_command_takes(tmp_path: Path) -> None:
    from policy.loading import load_for
    from policy.templates.loading import load_for as templates_for
    from receipts.sources import load_sources

    settings = load(write_config(Layout(tmp_path, 20_000)), environ={})
    accounts = load_accounts(settings.accounts)
    assert {one.provider for one in accounts.values()} == {"aliyun_sms", "smtp", "webhook"}
    assert load_for(settings).lanes["sms.verification"].guarantee == "at_least_once"
    assert templates_for(settings).get("login-code") is not None
    assert list(load_sources(settings)) == ["sms"]
    assert {lane.channel for lane in lanes()} == set(CHANNELS)


def test_the_lines_to_paste_are_two_and_the_path_is_named_once(tmp_path: Path) -> None:
    layout = Layout(tmp_path, 20_000)
    programs = REPOSITORY / ".venv" / "bin"
    config = f'export HONGYAN_CONFIG="{tmp_path}/hongyan.toml"'
    assert to_paste(layout, {"PATH": "/bin"}) == [f'export PATH="{programs}:$PATH"', config]
    assert to_paste(layout, {"PATH": f"/bin:{programs}"}) == [config]


def test_the_local_stack_needs_no_library_for_it() -> None:
    """`make up` may run before `.venv/` has any."""
    program = [sys.executable, "-S", "-c", "import deploy.local.__main__"]
    subprocess.run(program, cwd=REPOSITORY, env={"PATH": os.environ["PATH"]}, check=True)


# -- refusals --


def test_a_variable_that_leads_elsewhere_is_refused(
    hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_DATABASE__URL", "postgresql://elsewhere/db")
    ended = hongyan("dev")
    assert ended.code == 2
    assert ended.err.startswith("HONGYAN_DATABASE__URL: set, and would send commands elsewhere")


def test_a_folder_that_cannot_be_made_is_one_sentence(hongyan: Run, folder: Path) -> None:
    (folder / "file").touch()
    ended = hongyan("dev", "--folder", "file")
    assert (ended.code, ended.err) == (2, "--folder file: Not a directory; give another folder")


def test_one_folder_serves_one_at_a_time(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(NotDone, match=rf"runs in .+ already \(pid {os.getpid()}\)"),
    ):
        EmbeddedWorld(tmp_path).__enter__()
    with locked(tmp_path):
        pass  # free again


def test_without_a_stack_it_says_how_to_get_one(
    hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HONGYAN_STACK_DIR", raising=False)
    ended = hongyan("dev", "--with-stack")
    assert ended.code == 1
    assert "there is no " in ended.err
    assert ended.err.endswith("run `make up` in the repository first")


def test_a_half_started_stack_is_named(
    hongyan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_STACK_DIR", str(folder / "stack"))
    (folder / "stack").mkdir()
    write_config(Layout(folder / "stack", 64_000))  # nothing of ours listens there
    ended = hongyan("dev", "--with-stack")
    assert ended.code == 1
    assert ended.err.startswith("the stack's simulator does not answer (")
    assert ended.err.endswith("; run `make up`")


# -- its processes --


class World:
    config = Path("hongyan.toml")
    control = ""
    settings: dict[str, str] = {}  # noqa: RUF012
    scheduler: tuple[str, ...] = ()
    gone = ""

    def trouble(self) -> str:
        return self.gone


def supervision(tmp_path: Path, world: World, said: list[str]) -> tuple[Supervision, ProcessTree]:
    tree = ProcessTree(tmp_path, tmp_path / "none.toml", os.environ)
    return Supervision(world, tree, said.append), tree


def test_a_worker_that_fails_at_its_start_ends_it_with_the_cause(tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text("[worker]\nlanes = 7\n")
    made, tree = supervision(tmp_path, World(), [])
    with (
        tree,
        pytest.raises(NotDone, match=r"worker ended with code 2 \(.*worker\.lanes.*\); its log is"),
    ):
        made.start(Event())


def test_a_broker_that_ended_ends_it(tmp_path: Path) -> None:
    world = World()
    made, tree = supervision(tmp_path, world, [])
    world.gone = "the embedded Kafka ended"
    with tree, pytest.raises(NotDone, match="the embedded Kafka ended"):
        made.look()


def test_a_process_that_dies_again_and_again_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    made, tree = supervision(tmp_path, World(), said)
    monkeypatch.setattr(tree, "start", lambda *_, **__: None)
    monkeypatch.setattr(tree, "ended", lambda: [("receipts", -9)])
    made._launch("receipts")
    for _ in range(MOST_FAILURES - 1):
        made.look()
    assert said == ["receipts was ended by signal 9; started again"] * (MOST_FAILURES - 1)
    with pytest.raises(NotDone, match="receipts was ended by signal 9"):
        made.look()


@contextmanager
def running(*arguments: str, **more: str) -> Iterator[dict[str, Any]]:
    """`hongyan dev` with its line of JSON; ended by Ctrl-C, which must end it with 0."""
    command = [str(PROGRAM), "dev", "--json", *arguments]
    environ = {**os.environ, **more}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environ, start_new_session=True
    ) as dev:
        assert dev.stdout is not None
        try:
            yield json.loads(dev.stdout.readline())
        finally:
            dev.send_signal(signal.SIGINT)
            try:
                code = dev.wait(END_S)
            except subprocess.TimeoutExpired:
                dev.kill()
                raise
        assert code == 0


@pytest.mark.timeout(300)
@pytest.mark.soak(small="::test_with_the_stack_it_uses_real_servers")
def test_it_serves_other_terminals_starts_a_killed_worker_again_and_leaves_nothing(
    folder: Path, program: Run
) -> None:
    logs = folder / "shop" / "logs"
    with running("--folder", "shop") as started:
        config = {"HONGYAN_CONFIG": started["config"]}
        assert "Simulated provider" in httpx.get(started["control"], trust_env=False).text
        first = int((logs / "worker.pid").read_text())
        os.kill(first, signal.SIGKILL)
        old = ("", f"{first}\n")
        await_(lambda: (logs / "worker.pid").read_text() not in old, what="a new worker")
        sent = program(
            *("send", "--lane", "sms.notice", "--to", "+8613800000001"),
            *("--template", "SMS_1", "--biz-id", "o-1"),
            **config,
        )
        assert sent.code == 0, sent.err
        traced = program("trace", "o-1", "--wait", "50", **config)
        assert traced.code == 0, traced.err
        assert "account sms" in traced.out
        assert "+8613800000001" in httpx.get(started["control"], trust_env=False).text
        pids = [int(file.read_text()) for file in logs.glob("*.pid")]
        assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not list(logs.glob("*.pid"))


@pytest.mark.timeout(300)
def test_with_the_stack_it_uses_real_servers(
    folder: Path,
    program: Run,
    kafka_bootstrap: str,
    topic_prefix: str,
    database: str,
) -> None:
    stack = folder / "stack"
    stack.mkdir()
    with spawn(stack, smtp_port=0) as provider:
        config = write_config(Layout(stack, 20_000))
        (stack / config_files.CONTROL_FILE).write_text(provider.admin)
        text = config_files.with_addresses(
            config.read_text(),
            {
                ("kafka", "bootstrap"): kafka_bootstrap,
                ("redis", "url"): "",
                ("receipts", "listen"): "127.0.0.1:0",
                ("accounts.sms", "endpoint"): f"{provider.url}/aliyun_sms",
            },
        )
        (stack / config_files.DATABASE_FILE).write_text(database)
        prefixed = f'[kafka]\ntopic_prefix = "{topic_prefix}"\ngroup_id = "{topic_prefix}"\n'
        config.write_text(text.replace("[kafka]\n", prefixed))
        with running("--with-stack", HONGYAN_STACK_DIR=str(stack)) as started:
            assert Path(started["config"]) == config
            sent = program(
                *("send", "--lane", "sms.notice", "--to", "+8613800000001"),
                *("--template", "SMS_1", "--biz-id", "o-1"),
                HONGYAN_CONFIG=str(config),
            )
            assert sent.code == 0, sent.err
            traced = program("trace", "o-1", "--wait", "50", HONGYAN_CONFIG=str(config))
        assert traced.code == 0, traced.err
        assert provider.report().summary.accepted_keys == 1
