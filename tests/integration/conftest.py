"""Everything here runs against real servers: the whole stack, or it does not run.

fleet         `fleet(lanes=…, policy=…)` opens a fleet of its own on the shared stack
breakable     one private stack for a module, to kill servers of; each test starts again what it killed
broken_fleet  `broken_fleet(…)` opens a fleet on it
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.local.stack import Stack, private_stack
from tests.harness import Fleet, ground_on

MakeFleet = Callable[..., Fleet]
_FLEETS = pytest.StashKey[list[Fleet]]()


@pytest.fixture(autouse=True)
def _real_servers(stack: Stack) -> Stack:
    return stack


@pytest.fixture
def fleet(stack: Stack, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MakeFleet]:
    with ExitStack() as held:
        yield _opener(held, stack, tmp_path, request)


@pytest.fixture(scope="module")
def breakable(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with ExitStack() as held:
        yield held.enter_context(private_stack(tmp_path_factory.mktemp("breakable")))


@pytest.fixture
def broken_fleet(
    breakable: Stack, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[MakeFleet]:
    with ExitStack() as held:
        yield _opener(held, breakable, tmp_path, request)
        for name in filter(breakable.running, breakable.names):
            breakable.resume(name)
        breakable.up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows the end of every worker's log."""
    report = yield
    if call.when == "call" and call.excinfo is not None:
        for fleet in item.stash.get(_FLEETS, []):
            report.sections += [(f"worker {w.id}", w.tail()) for w in fleet.workers]
    return report


def _opener(
    held: ExitStack, stack: Stack, folder: Path, request: pytest.FixtureRequest
) -> MakeFleet:
    opened = request.node.stash.setdefault(_FLEETS, [])

    def make(**options: Any) -> Fleet:
        ground = held.enter_context(ground_on(stack))
        fleet = Fleet(ground, folder / str(len(opened)), **options)
        opened.append(fleet)
        return held.enter_context(fleet)

    return make
