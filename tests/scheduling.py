"""How pytest-xdist shares the tests out among its processes.

Tests of one group run in one process. pytest 9.2 no longer passes on the names that xdist gives to groups,
so the groups are made here, from the tests' paths.

The groups come first. Then tests of all folders take turns, so that those which wait for a process or a
lease run beside those which compute.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

SPARK: Final = "tests/spark_jobs/"
"""One Spark session serves them all; its start takes seconds of both cores."""
_OWN_SESSION: Final = "tests/spark_jobs/truth/"


class GroupScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Sends the tests of a group to one process, the largest group first; others wherever there is room."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(SPARK) and not nodeid.startswith(_OWN_SESSION):
            return SPARK
        return str(super()._split_scope(nodeid))

    def schedule(self) -> None:
        """Puts the tests in their order once, after xdist has put the groups first."""
        begins = self.collection is None
        super().schedule()
        if begins:
            groups = {name: tests for name, tests in self.workqueue.items() if len(tests) > 1}
            single = interleaved(name for name in self.workqueue if name not in groups)
            queue = groups | {name: self.workqueue[name] for name in single}
            self.workqueue = OrderedDict(queue)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forgets a group once it has ended: xdist goes through all that it remembers after each test."""
        super().mark_test_complete(node, item_index, duration)
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node].get(group, {"": False}).values()):
            del self.assigned_work[node][group]


def interleaved(names: Iterable[str]) -> list[str]:
    """Returns the tests by their share of the way through their folder: each folder is spread over the whole
    run, in its own order."""
    listed = list(names)
    sizes = Counter(map(_folder, listed))
    seen: Counter[str] = Counter()
    places: dict[str, float] = {}
    for name in listed:
        folder = _folder(name)
        places[name] = (seen[folder] + 0.5) / sizes[folder]
        seen[folder] += 1
    return sorted(listed, key=places.__getitem__)


def _folder(name: str) -> str:
    return name.partition("::")[0].rpartition("/")[0]
