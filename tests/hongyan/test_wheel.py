"""The wheel in an environment that has its base dependencies alone: no extra, no source tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.hongyan.conftest import Said

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
Call = Callable[..., Said]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [str(UV), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if built.returncode and not os.environ.get("HONGYAN_REQUIRE_STACK"):
        pytest.skip(f"the wheel cannot be built here: {built.stderr.strip()[-200:]}")
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Calls the program of an environment with the wheel and its base dependencies."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, symlinks=True, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    for one in base_distributions("hongyan", set()):
        for name in {file.parts[0] for file in one.files or () if file.parts[0] != ".."}:
            (packages / name).symlink_to(Path(str(one.locate_file(name))))
    with ZipFile(wheel) as archive:
        archive.extractall(packages)
    folder = tmp_path_factory.mktemp("somewhere")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("HONGYAN_", "PYTHON"))}

    def run(*arguments: str) -> Said:
        program = "from hongyan.program import main; main()"
        done = subprocess.run(
            [str(home / "bin" / "python"), "-c", program, *arguments],
            cwd=folder,
            env=environ,
            timeout=60,
            check=False,
            capture_output=True,
            text=True,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return run


def base_distributions(name: str, seen: set[str]) -> Iterator[Distribution]:
    """The distributions that `name` needs without any extra."""
    for text in distribution(name).requires or ():
        wanted = Requirement(text)
        if wanted.name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(wanted.name)
        try:
            yield distribution(wanted.name)
        except PackageNotFoundError:
            continue
        yield from base_distributions(wanted.name, seen)


def test_the_wheel_holds_its_packages_and_the_demos_notifications(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        text = archive.read("hongyan/demo/notifications.jsonl")
    assert text == (ROOT / "examples" / "notifications.jsonl").read_bytes()
    tops = {name.partition("/")[0] for name in names}
    assert not tops & {"tests", "examples", "deploy", "docs", "benchmarks"}
    for folder in ("hongyan", "policy", "backends"):
        ours = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py")}
        assert ours <= set(names)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("demo", "--help"), ("config", "show"), ("completion", "bash")]
)
def test_it_helps_without_any_extra(installed: Call, arguments: tuple[str, ...]) -> None:
    said = installed(*arguments)
    assert said.code == 0, said.err
    assert "Traceback" not in said.err


def test_the_check_says_what_it_could_not_check(installed: Call) -> None:
    said = installed("config", "check")
    assert said.code == 0, said.err
    assert "[database]: not checked, since " in said.err


@pytest.mark.parametrize(
    ("arguments", "extras"),
    [
        (("demo", "--file", "/dev/null"), "worker,simulator"),
        (("worker",), "worker"),
        (("recovery",), "worker"),
        (("receipts",), "receipts"),
        (("simulator",), "simulator"),
        (("db", "upgrade"), "worker"),
        (("status",), "worker"),
        (("topics", "apply"), "worker"),
    ],
)
def test_a_missing_extra_is_one_sentence_with_what_to_type(
    installed: Call, arguments: tuple[str, ...], extras: str
) -> None:
    said = installed(*arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert re.search(
        rf"not installed; to get (it|them), type: pip install 'hongyan\[{extras}\]'", said.err
    )
