"""Groups of commands, old spellings of options, completion, missing extras."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from hongyan.cli import app
from hongyan.usage import extras
from hongyan.usage.command_line import OLD_OPTIONS, PANELS, WITH_VALUE, part_of
from hongyan.usage.extras import sentence_for
from tests.hongyan.conftest import Run
from tests.hongyan.shell import said

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def commands(command: Any, path: str = "hongyan") -> Iterator[tuple[str, Any]]:
    """Every command with its path."""
    for name, one in getattr(command, "commands", {}).items():
        yield f"{path} {name}", one
        yield from commands(one, f"{path} {name}")


ALL = dict(commands(get_command(app)))


def test_every_command_is_in_a_group(hongyan: Run) -> None:
    top = {path.split()[1] for path in ALL if path.count(" ") == 1}
    assert top <= {name for group in PANELS.values() for name in group}
    listed = [name for group in PANELS.values() for name in group]
    assert len(listed) == len(set(listed)), "a command is listed once"
    shown = hongyan("--help").out
    assert [name for name in listed if shown.count(f"│ {name} ") != 1] == []
    places = [shown.index(f"─ {title} ─") for title in PANELS]
    assert places == sorted(places)
    assert shown.index("─ Send ─") < shown.index("│ send ") < shown.index("─ Run ─")


def test_of_a_named_command_only_its_own_part_is_made() -> None:
    for path in ALL:
        words = path.split()[1:]
        made = dict(commands(get_command(part_of(app, words))))
        assert path in made
        assert {one.split()[1] for one in made} == {words[0]}
    for words in (["-c", "status", "--help", "db"], ["--config=status", "db"]):
        assert set(get_command(part_of(app, words)).commands) == {"db"}  # type: ignore[attr-defined]


def test_the_programs_options_with_a_value_are_known() -> None:
    params: Any = get_command(app).params
    valued = {name for one in params if not one.is_flag for name in one.opts}
    assert valued == set(WITH_VALUE)


@pytest.mark.parametrize("words", [[], ["--help"], ["statuss"], ["-c", "db"], ["--version"]])
def test_without_a_known_command_the_whole_program_is_made(words: list[str]) -> None:
    assert part_of(app, words) is app


def test_for_completions_the_whole_program_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert part_of(app, ["status"]) is not app
    monkeypatch.setenv("_HONGYAN_COMPLETE", "complete_bash")
    assert part_of(app, ["status"]) is app


def test_one_option_has_one_name_everywhere() -> None:
    names = {
        option
        for command in ALL.values()
        for param in command.params
        if not getattr(param, "hidden", False)
        for option in getattr(param, "opts", ())
        if option.startswith("--")
    }
    assert {"--lane", "--biz-id", "--reason-code", "--since"} <= names
    assert not names & {f"--{old}" for old in OLD_OPTIONS}


def test_every_option_says_what_it_is() -> None:
    for path, command in ALL.items():
        for param in command.params:
            text = getattr(param, "help", None) or ""
            if getattr(param, "hidden", False) or param.name in ("help", "json"):
                continue
            assert not re.match(r"(Of|Its|Do) ", text), (path, param.name, text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("policy", "show", "--lanes", "sms.notice"), ("policy", "show", "--lane", "sms.notice")),
        (("recall", "--biz", "x", "--wait", "0"), ("recall", "--biz-id", "x", "--wait", "0")),
        (("resend", "--row-reason", "x"), ("resend", "--reason-code", "x")),
        (("dead", "list", "--reason", "x"), ("dead", "list", "--reason-code", "x")),
        (("deliveries", "list", "--lanes", "x"), ("deliveries", "list", "--lane", "x")),
    ],
)
def test_the_old_spelling_of_an_option_works(
    hongyan: Run, old: tuple[str, ...], new: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_KAFKA__CONNECT_TIMEOUT_S", "0.1")
    monkeypatch.setenv("HONGYAN_KAFKA__BOOTSTRAP", "127.0.0.1:1")
    assert hongyan(*old) == hongyan(*new)
    assert "No such option" not in hongyan(*old).err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(hongyan: Run, shell: str) -> None:
    found = hongyan("completion", shell)
    assert found.code == 0
    assert "_HONGYAN_COMPLETE=complete_" in found.out


def test_a_shell_completes_commands_and_options(program: Run) -> None:
    def completed(words: str) -> list[str]:
        count = str(len(words.split(" ")) - 1)
        return program(
            _HONGYAN_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count
        ).out.split()

    assert completed("hongyan work") == ["worker", "workers"]
    assert "apply" in completed("hongyan policy ")
    assert completed("hongyan resend jo") == ["jobs"]
    assert completed("hongyan resend jobs ca") == ["cancel"]
    assert "--since" in completed("hongyan resend jobs new --s")
    assert "--since" in completed("hongyan resend --s")
    assert "--since" in completed("hongyan deliveries list --s")


def test_bash_takes_the_script(hongyan: Run) -> None:
    script = hongyan("completion", "bash").out
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode == 0


def test_the_table_of_extras_is_that_of_the_project() -> None:
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    owners = packages_distributions()
    assert set(extras.MODULES) == set(declared) - {"all"}
    for extra, modules in extras.MODULES.items():
        names = {re.split(r"[\[<>=~! ]", one)[0] for one in declared[extra]} - {"hongyan"}
        brought = {
            owner.lower().replace("_", "-") for name in modules for owner in owners.get(name, ())
        }
        of_others = {"simulator": {"h2", "httptools"}, "lookback": {"protobuf"}}.get(extra, set())
        if extra == "otel":  # several packages share the module
            brought = {owner for owner in brought if owner in names}
        assert brought - {"kombu"} == names - of_others, extra


def test_a_missing_library_is_told_with_what_to_type() -> None:
    text = sentence_for(ModuleNotFoundError("No module named 'celery'", name="celery.app"))
    assert text == (
        "this command needs celery, which is not installed; to get it, type:"
        " pip install 'hongyan[recovery]'"
    )
    assert sentence_for(ModuleNotFoundError("No module named 'x'", name="x")) == ""
    assert sentence_for(ValueError("x")) == ""


@pytest.mark.parametrize("command", [("worker",), ("recovery", "--embedded")])
def test_spans_without_their_extra_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "hongyan.toml").write_text(
        "[trace]\nkafka = false\n[accounts.w]\nprovider = 'webhook'\nendpoint = 'http://127.0.0.1:9/'\n"
        "[telemetry]\notlp_endpoint = 'http://127.0.0.1:9'\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(extras.MODULES, "otel", ("no_such_module",))
    code, text = said(monkeypatch, *command)
    assert code == 2
    assert text == (
        "error: telemetry.otlp_endpoint needs no_such_module, which is not installed; to get it, type:"
        " pip install 'hongyan[otel]'\n"
    )


def test_a_command_that_starts_processes_checks_its_extras_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(extras.MODULES, "simulator", ("no_such_module",))
    code, text = said(monkeypatch, "demo")
    assert code == 2
    assert text == (
        "error: hongyan demo needs no_such_module, which is not installed; to get it, type: pip install"
        " 'hongyan[worker,simulator]'\n"
    )
    assert said(monkeypatch, "demo", "--help")[0] == 0
