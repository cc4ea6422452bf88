"""Plans as files of the warehouse: `_ingest/VERSION.REVISION.json`. The newest is where the ingest goes on.

A file that cannot be read was being written when its process died; nothing was read by it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from spark_jobs import jvm
from spark_jobs.errors import WarehouseTrouble
from spark_jobs.ingest.plan import IngestPlan

KEPT: Final = 5
"""Plans before the newest that stay, to be looked at."""
_END: Final = b"\n"
"""Behind a whole plan."""


class PlanFiles:
    """The plans of one warehouse."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._folder = self._path(f"{root}/_ingest")
        self._files = self._folder.getFileSystem(
            jvm.java_session(spark).sessionState().newHadoopConf()
        )

    def newest(self) -> IngestPlan | None:
        """Returns the newest whole plan; None without one."""
        for name in sorted(self._names(), reverse=True):
            if (plan := self._read(name)) is not None:
                return plan
        return None

    def write(self, plan: IngestPlan) -> None:
        """Keeps a plan, durably, and removes old ones. Raises WarehouseTrouble if there is a whole one of
        its version and revision: then another process is at work."""
        name = _name(plan)
        if name in self._names() and self._read(name) is not None:
            raise WarehouseTrouble(
                f"the warehouse has a plan {name} already: another process ingests into it"
            )
        stream = self._files.create(self._path(f"{self._folder.toString()}/{name}"), True)
        stream.write(msgspec.json.encode(plan) + _END)
        stream.hsync()
        stream.close()
        self._clean(plan.version - KEPT)

    def _names(self) -> list[str]:
        if not self._files.exists(self._folder):
            return []
        found = [status.getPath().getName() for status in self._files.listStatus(self._folder)]
        return [name for name in found if name.endswith(".json")]

    def _read(self, name: str) -> IngestPlan | None:
        stream = self._files.open(self._path(f"{self._folder.toString()}/{name}"))
        try:
            data = bytes(stream.readAllBytes())
        finally:
            stream.close()
        try:
            return msgspec.json.decode(data, type=IngestPlan) if data.endswith(_END) else None
        except msgspec.DecodeError:
            return None

    def _clean(self, oldest: int) -> None:
        for name in self._names():
            if int(name.partition(".")[0]) < oldest:
                self._files.delete(self._path(f"{self._folder.toString()}/{name}"), False)

    def _path(self, text: str) -> Any:
        return jvm.jvm_of(self._spark).org.apache.hadoop.fs.Path(text)


def _name(plan: IngestPlan) -> str:
    return f"{plan.version:012d}.{plan.revision:03d}.json"
