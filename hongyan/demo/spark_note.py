"""The demo's line on the Spark jobs, which it does not run (docs/decisions/151-the-demo-names-spark.md)."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_WHY: Final = (
    "The Spark jobs, which rebuild each delivery's path and find lost ones, are not shown: "
)
_NEXT: Final = "type make up, then hongyan spark run (docs/spark.md)."


def spark_note(java_home: str) -> str:
    """Returns the sentence: the step that shows them, or the reason why this machine cannot."""
    home = Path(java_home, "bin", "java")
    if not (home.is_file() if java_home else shutil.which("java")):
        return f"{_WHY}they need Java 17 or newer."
    if find_spec("pyspark") is None:
        return f"{_WHY}they need pip install 'hongyan[spark]'."
    return f"{_WHY}Java's Kafka client cannot read the embedded Kafka. With a real one {_NEXT}"
