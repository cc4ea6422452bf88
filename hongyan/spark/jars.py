"""The jars of the Spark jobs: Kafka source, Delta Lake, JDBC drivers. Fetched once per user, whole or not
at all, without their transitive dependencies (docs/decisions/134-jars-without-their-trees.md).

    python -m hongyan.spark.jars      fetches them, and prints their folder
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

FETCH_S: Final = 300
"""Longest time for one jar."""
_TRIES: Final = 2


class NoJars(Exception):
    """The jars are not there and could not be fetched; one sentence says what to do."""


class Jar(NamedTuple):
    """One jar of Maven Central."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """GROUP:NAME:VERSION."""
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.name}-{self.version}.jar"


_SPARK, _DELTA, _UNITY = "org.apache.spark", "io.delta", "io.unitycatalog"
JARS: Final = (
    Jar(
        *(_SPARK, "spark-sql-kafka-0-10_2.13", "4.2.0"),
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    # Of delegation tokens alone; that of 4.2.0 is missing from some mirrors.
    Jar(
        *(_SPARK, "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        *("org.apache.kafka", "kafka-clients", "3.9.2"),
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        *("org.apache.commons", "commons-pool2", "2.13.1"),
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
    Jar(
        *(_DELTA, "delta-spark_2.13", "4.4.0"),
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        *(_DELTA, "delta-storage", "4.4.0"),
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
    Jar(
        *(_DELTA, "delta-kernel-api", "4.4.0"),
        "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    ),
    Jar(
        *(_DELTA, "delta-kernel-defaults", "4.4.0"),
        "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    ),
    Jar(
        *(_DELTA, "delta-kernel-unitycatalog", "4.4.0"),
        "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    ),
    # Delta's classes name these, though no catalog of theirs is used.
    Jar(
        *(_UNITY, "unitycatalog-client", "0.6.0"),
        "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
    ),
    Jar(
        *(_UNITY, "unitycatalog-hadoop", "0.6.0"),
        "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150",
    ),
    Jar(
        *("org.postgresql", "postgresql", "42.7.8"),
        "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
    ),
    Jar(
        *("org.xerial", "sqlite-jdbc", "3.53.4.0"),
        "bcb1f51e36f940867e83342f9efbf5968ac44a6bef4d397bb4af7b17b45cd2fb",
    ),
)
"""All jars, each of a version that was seen to work with the others on Spark 4.2.0 and Java 17."""

Say = Callable[[str], None]


def jar_folder() -> Path:
    """Returns the cache folder of exactly these jars."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    named = "\n".join(f"{jar.coordinate} {jar.sha256}" for jar in JARS)
    return cache / "hongyan" / f"spark-{hashlib.sha256(named.encode()).hexdigest()[:12]}"


def jar_files(configured: Sequence[str], say: Say) -> list[str]:
    """Returns `spark.jars` as configured, else the pinned jars, fetched if need be. Raises NoJars."""
    if configured:
        return list(configured)
    folder = fetched(say)
    return [str(folder / jar.file) for jar in JARS]


def fetched(say: Say) -> Path:
    """Returns the folder of the pinned jars. Raises NoJars."""
    folder = jar_folder()
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        raise NoJars(
            "the Spark jobs need jars of Maven Central, and there is no `mvn` to fetch them; install maven,"
            " or name them in spark.jars (docs/spark.md)"
        )
    say(f"fetching {len(JARS)} jars from Maven Central (39 MB, once)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="fetching-", dir=folder.parent))
    try:
        for jar in JARS:
            _fetch(jar, draft)
        if not folder.exists():  # another process may have been quicker
            draft.rename(folder)
    except OSError:
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _fetch(jar: Jar, folder: Path) -> None:
    failure = ""
    for _ in range(_TRIES):
        failure = _copy(jar, folder)
        if not failure:
            break
    else:
        raise NoJars(
            f"{jar.coordinate} could not be fetched from Maven Central: {failure}; check the network and"
            " try again, or name the jars in spark.jars"
        )
    if hashlib.sha256((folder / jar.file).read_bytes()).hexdigest() != jar.sha256:
        raise NoJars(
            f"{jar.coordinate} from Maven Central has another SHA-256 than the pinned one; nothing was"
            " kept: look at the repository that Maven asks"
        )


def _copy(jar: Jar, folder: Path) -> str:
    """Returns Maven's error; empty if the jar is in the folder."""
    command = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={jar.coordinate}:jar"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program
            [*command, f"-DoutputDirectory={folder}"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {FETCH_S} s"
    if not done.returncode and (folder / jar.file).is_file():
        return ""
    errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
    return errors[0][len("[ERROR] ") :][:300] if errors else "Maven gave no reason"


def main() -> int:
    """Fetches the jars. Returns the exit code."""
    try:
        print(fetched(lambda line: print(line, file=sys.stderr, flush=True)))
    except NoJars as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
