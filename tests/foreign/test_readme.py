"""The table of judges says what is installed and asked: a judge that goes away is missed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
_ROW = re.compile(
    r"^\| `([a-z0-9-]+)` \| ([0-9][0-9.]*) \| .+ \| (test_[a-z0-9_., ]+\.py) \|$", re.M
)


def rows() -> dict[str, tuple[str, list[str]]]:
    """Package, to its version and the modules that ask it."""
    found = _ROW.findall((_HERE / "README.md").read_text())
    return {name: (version, where.split(", ")) for name, version, where in found}


def test_the_table_names_the_judges_of_the_group_with_their_locked_versions() -> None:
    group = tomllib.loads((_ROOT / "pyproject.toml").read_text())["dependency-groups"]["foreign"]
    lock = tomllib.loads((_ROOT / "uv.lock").read_text())["package"]
    locked = {one["name"]: one.get("version") for one in lock}
    named = {name: version for name, (version, _) in rows().items()}
    assert named == {name: locked[name] for name in (re.split("[>=<]", one)[0] for one in group)}


def test_each_judge_is_asked_by_the_module_that_the_table_names() -> None:
    for name, (version, modules) in rows().items():
        for module in modules:
            text = (_HERE / module).read_text()
            assert f"`{name}`" in text, f"{module} does not name {name}"
            assert version
