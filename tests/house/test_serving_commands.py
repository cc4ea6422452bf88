"""Each command that serves tunes the interpreter, after its imports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY

COMMANDS = REPOSITORY / "hongyan" / "commands"
ELSEWHERE = {
    "worker.py": "dispatcher/process.py",  # the benchmarks start it there
    "spark.py": "",  # the work is Java's
}


def calls(path: Path, name: str) -> bool:
    tree = ast.parse(path.read_text())
    found = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == name for function in found)


SERVING = [path.name for path in sorted(COMMANDS.glob("*.py")) if calls(path, "serving")]


@pytest.mark.parametrize("name", SERVING)
def test_a_command_that_serves_tunes_the_interpreter(name: str) -> None:
    place = ELSEWHERE.get(name, f"hongyan/commands/{name}")
    assert not place or calls(REPOSITORY / place, "tune_interpreter")


def test_the_commands_that_serve_are_found() -> None:
    assert {"worker.py", "console.py", "gateway.py", "recovery.py"} <= {*SERVING}
