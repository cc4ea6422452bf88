"""How pytest-xdist shares the tests out among its processes.

Tests of one group run in one process. xdist adds a group's name to the names of its tests, which pytest
9.2 ignores. So the processes of xdist write the groups to a file, which the scheduler reads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

SPARK: Final = "tests/spark_jobs/"
"""One Spark session serves them all; its start takes seconds of both cores."""
_OWN_SESSION: Final = "tests/spark_jobs/truth/"
_INPUT: Final = "groups_file"


class GroupsFile:
    """Plugin of the process that shares tests out: the file by which it hears of groups."""

    NAME: Final = "groups_file"

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self.path = Path(self._folder.name) / "groups.json"

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_INPUT] = str(self.path)

    def pytest_unconfigure(self) -> None:
        self._folder.cleanup()


class GroupScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Sends the tests of a group to one process, the largest group first; others wherever there is room."""

    _groups: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            file = self.config.pluginmanager.get_plugin(GroupsFile.NAME).path
            self._groups = msgspec.json.decode(file.read_bytes(), type=dict[str, str])
        return self._groups.get(nodeid, nodeid)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forgets a group once it has ended: xdist goes through all that it remembers after each test."""
        super().mark_test_complete(node, item_index, duration)
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node].get(group, {"": False}).values()):
            del self.assigned_work[node][group]


def write_groups(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Writes the groups of the collected tests, before xdist tells the scheduler that they are collected.
    Each process writes the same, and replaces the file as a whole: any of them may die."""
    given: dict[str, Any] = getattr(config, "workerinput", {})
    if _INPUT not in given:
        return
    groups = {item.nodeid: group for item in items if (group := group_of(item))}
    file = Path(given[_INPUT])
    own = file.with_suffix(f".{os.getpid()}")
    own.write_bytes(msgspec.json.encode(groups))
    own.replace(file)


def group_of(item: pytest.Item) -> str | None:
    """Returns the group of a test; None: it runs wherever there is room. What a module makes once is made
    once in one process."""
    path = item.nodeid.partition("::")[0]
    if path.startswith(SPARK) and not path.startswith(_OWN_SESSION):
        return SPARK
    known = getattr(item, "_fixtureinfo", None)
    made = known.name2fixturedefs.values() if known else ()
    shares = any(definition.scope == "module" for definitions in made for definition in definitions)
    return path if shares else None
