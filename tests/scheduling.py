"""How pytest-xdist shares the tests out among its processes.

Tests of one group run in one process. pytest 9.2 no longer passes on the names that xdist gives to groups,
so the groups are made here, from the tests' paths.
"""

from __future__ import annotations

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

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forgets a group once it has ended: xdist goes through all that it remembers after each test."""
        super().mark_test_complete(node, item_index, duration)
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node].get(group, {"": False}).values()):
            del self.assigned_work[node][group]
