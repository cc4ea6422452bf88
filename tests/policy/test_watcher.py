"""Watching for another policy: adopted whole or not at all, through every trouble."""

from __future__ import annotations

import threading

import pytest

from backends.sql.errors import SqlAway
from policy.schema import Policy
from policy.versions import Version
from policy.watcher import PolicyWatcher

GOOD = "[defaults]\nthreads = 3\n"


class Bench:
    """A database of versions and a process that adopts them; both can fail."""

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.adopted: list[str] = []
        self.asked = 0
        self.fault: BaseException | None = None
        self.refusal: BaseException | None = None
        self.adopting = threading.Event()
        self.watch = PolicyWatcher(self, {"demo": {}}, self.adopt, number=0, look_s=0.001)

    def newer_than(self, number: int) -> Version | None:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        newer = [version for version in self.versions if version.number > number]
        return newer[-1] if newer else None

    def adopt(self, policy: Policy) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.adopted.append(policy.version)
        self.adopting.set()

    def apply(self, text: str = GOOD) -> None:
        number = len(self.versions) + 1
        self.versions.append(Version(number, f"v{number}:x", "li", 0, text, ""))

    def look(self) -> tuple[int, bool]:
        self.watch.look()
        return self.watch.number, self.watch.refused


def test_a_version_is_adopted_once_and_of_several_the_newest() -> None:
    bench = Bench()
    assert bench.look() == (0, False)
    bench.apply()
    bench.apply()
    assert bench.look() == bench.look() == (2, False)
    assert bench.adopted == ["v2:x"]


def test_one_that_is_wrong_is_refused_once_and_the_next_good_one_heals() -> None:
    bench = Bench()
    bench.apply()
    bench.look()
    bench.apply('[defaults]\naccounts = ["nobody"]\n')
    assert bench.look() == bench.look() == (1, True)
    bench.apply()
    assert bench.look() == (3, False)
    assert bench.adopted == ["v1:x", "v3:x"]


@pytest.mark.parametrize("refusal", [ValueError("no such account"), KeyError("a bug")], ids=repr)
def test_what_the_process_cannot_follow_is_refused_and_ends_nothing(refusal: Exception) -> None:
    bench = Bench()
    bench.refusal = refusal
    bench.apply()
    assert bench.look() == (0, True)
    bench.refusal = None
    bench.apply()
    assert bench.look() == (2, False)


@pytest.mark.parametrize("fault", [SqlAway("gone"), RuntimeError("a bug")], ids=repr)
def test_a_database_that_is_away_changes_nothing_and_is_asked_again(fault: Exception) -> None:
    bench = Bench()
    bench.apply()
    bench.look()
    bench.fault = fault
    bench.apply()
    assert bench.look() == bench.look() == (1, False)
    bench.fault = None
    assert bench.look() == (2, False)


def test_it_looks_until_it_is_stopped_and_adopts_nothing_after() -> None:
    bench = Bench()
    thread = threading.Thread(target=bench.watch.run)
    thread.start()
    bench.apply()
    assert bench.adopting.wait(10)
    bench.watch.stop()
    thread.join(10)
    assert not thread.is_alive()
    bench.apply()
    assert bench.look() == (1, False)
