"""The watcher of the ordered bench: a figure that nobody watched to the end is none."""

from __future__ import annotations

import pytest

from benchmarks.ordered_faults import Watcher


class Dying(Watcher):
    """Its thread dies at once."""

    def _watch(self) -> None:
        raise ValueError("no such column")


def test_the_bench_fails_where_its_watcher_died() -> None:
    with pytest.raises(RuntimeError, match="nobody watched to the end") as failed, Dying("") as one:
        one._thread.join(10)
    assert isinstance(failed.value.__cause__, ValueError)


def test_the_fault_of_the_run_itself_is_not_hidden_by_it() -> None:
    with pytest.raises(KeyError), Dying(""):
        raise KeyError("the run")
