"""README, quick start and tutorial work: their commands run as typed, in a copy of the repository."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY, Layout
from deploy.local.stack import Stack, reserved_base
from tests.harness.pages import (
    Commands,
    TypedFile,
    commands_of,
    copy_of_the_repository,
    shell_environment,
    steps_of,
    type_page,
    type_script,
)
from tests.services import Services

README, CHINESE = "README.md", "README.zh-CN.md"
_STATES = re.compile(r"\b(SENT|DELIVERED|REJECTED)\b")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_the_repository(tmp_path_factory.mktemp("clone"))


def page(name: str) -> str:
    return (REPOSITORY / name).read_text("utf-8")


def blocks(name: str) -> list[list[str]]:
    return [commands_of([s]) for s in steps_of(page(name)) if isinstance(s, Commands)]


def test_both_readmes_have_the_same_commands() -> None:
    assert blocks(README) == blocks(CHINESE)


def test_targets_of_the_first_block_exist(clone: Path) -> None:
    first = blocks(README)[0]
    assert first == ["make demo", "make test"]  # the demo has a test of its own; this is the other
    for line in first:
        subprocess.run([*line.split(), "-n"], cwd=clone, capture_output=True, check=True)


def test_a_copy_has_all_that_make_venv_makes_and_gets_the_scripts_that_are_gone(
    clone: Path,
) -> None:
    def made() -> str:
        command = ["make", "-n", "venv"]
        return subprocess.run(command, cwd=clone, capture_output=True, check=True, text=True).stdout

    assert "bootstrap" not in made()
    scripts = clone / "admin" / "static" / "vendor"
    there = scripts.readlink()
    scripts.unlink()
    try:
        assert "deploy/local/bootstrap.sh" in made()
    finally:
        scripts.symlink_to(there)


@pytest.fixture
def port_base(services: Services, clone: Path) -> Iterator[int]:
    services.require_all()  # a machine that cannot have the shared stack cannot have this one
    with reserved_base(1) as base:
        yield base
        Stack(Layout(clone / ".stack", base), with_simulator=True).down(wipe=True)


@pytest.mark.timeout(300)
@pytest.mark.soak(small="::test_both_readmes_have_the_same_commands")
def test_readme_works_as_typed(clone: Path, port_base: int) -> None:
    _first, use_it = (s for s in steps_of(page(README)) if isinstance(s, Commands))
    environ = shell_environment(clone, HONGYAN_STACK_PORT_BASE=str(port_base))
    printed = type_script(use_it.lines, clone, environ)
    typed = commands_of([use_it])
    for line in (
        'export PATH="$PWD/.venv/bin:$PATH"',
        'export HONGYAN_CONFIG="$PWD/.stack/hongyan.toml"',
    ):
        assert line in typed
        assert line.replace("$PWD", str(clone)) in printed, "`make up` prints what README says"
    assert _STATES.search(printed)


def test_quick_start_has_two_files_and_five_commands() -> None:
    steps = steps_of(page("docs/quick-start.md"))
    assert len([s for s in steps if isinstance(s, TypedFile)]) == 2
    assert len(commands_of(steps)) <= 5


@pytest.mark.timeout(300)
def test_quick_start_works_as_typed(clone: Path) -> None:
    printed = type_page(page("docs/quick-start.md"), clone, shell_environment(clone))
    assert "sms.verification" in printed
    assert "email.notice" in printed
    assert len(_STATES.findall(printed)) >= 2


@pytest.mark.timeout(300)
@pytest.mark.soak(small="::test_quick_start_works_as_typed")
def test_tutorial_works_as_typed(clone: Path) -> None:
    printed = type_page(page("docs/tutorial.md"), clone, shell_environment(clone))
    assert "REJECTED (isv.MOBILE_NUMBER_ILLEGAL)" in printed
    stories = printed.split("login-3")
    assert "SENT" in stories[-1] or "DELIVERED" in stories[-1], "resent and accepted"
