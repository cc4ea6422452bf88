"""Where programs of judges are kept: fetched once for a checkout, whichever stack the tests run on."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deploy.local.errors import StackError
from deploy.local.layout import REPOSITORY
from deploy.local.system import unpacked
from tests.services import give_up

_FOLDER: Final = REPOSITORY / ".stack" / "foreign"


@contextmanager
def judges_folder(program: str) -> Iterator[Path]:
    """Yields the folder. One process at a time fetches the program."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / f"{program}.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield _FOLDER


def unpacked_judge(package: str) -> Path:
    """Returns the root that the distribution's package was unpacked under; it is never installed. Skips the
    test where it cannot be had, and fails it where everything must be."""
    with judges_folder(package) as root:
        try:
            return unpacked(package, root / package, print)
        except StackError as exc:
            give_up(str(exc))
            raise
