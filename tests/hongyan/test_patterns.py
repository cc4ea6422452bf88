"""Regular expressions meet texts of strangers: none may take more than linear time."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hongyan.pattern_growth import PACKAGES

ROOT = Path(__file__).parents[2]
ON_THE_SPOT = {"search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
FROM_PARTS = {
    "channels/probe/redaction.py",
    "hongyan_client/outbox/migration.py",
    "idempotency/archive/day_partitions.py",
}
"""Made of escaped texts, or a table's name, with nothing repeated in them."""


@pytest.mark.timeout(300)
@pytest.mark.soak(small="::test_every_pattern_is_a_constant_of_its_module")
def test_no_pattern_takes_more_than_linear_time() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.hongyan.pattern_growth"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    lines = run.stdout.splitlines()
    assert [line for line in lines if line.startswith("GROWS")] == []
    assert lines[-1] == "DONE", (
        f"ended by the limit of CPU time, or failed: {lines[-1]}\n{run.stderr}"
    )
    assert sum(line.startswith("TRY") for line in lines) > 40


def test_every_pattern_is_a_constant_of_its_module() -> None:
    """Only those are found and tried."""
    hidden = set()
    for path in sorted(file for name in PACKAGES for file in (ROOT / name).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        at_top = {id(node) for top in tree.body for node, _ in _calls(top) if _is_constant(top)}
        if any(use in ON_THE_SPOT or id(call) not in at_top for call, use in _calls(tree)):
            hidden.add(str(path.relative_to(ROOT)))
    assert hidden <= FROM_PARTS


def _is_constant(top: ast.stmt) -> bool:
    return isinstance(top, ast.Assign | ast.AnnAssign)


def _calls(tree: ast.AST) -> list[tuple[ast.Call, str]]:
    """Of `re.compile`, `re.search` and the like."""
    return [
        (node, node.func.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in ON_THE_SPOT | {"compile"}
    ]
