"""Prints the tests that failed, if so few that each is worth a run of its own. Takes the lists of all runs.

Exits with 1, and says why, where none is listed (pytest itself ended) or more than `FEW`.
"""

import json
import re
import sys
from pathlib import Path

FEW = 6
_GROUP = re.compile(r"@[^@\]]*$")
"""pytest-xdist writes the group of a test behind its name."""


def main(lists: list[Path]) -> int:
    failed = [
        _GROUP.sub("", name)
        for one in lists
        if one.exists()
        for name in json.loads(one.read_text())
    ]
    if not 0 < len(failed) <= FEW:
        say(f"{len(failed)} tests failed; up to {FEW} are run again alone, not these.")
        return 1
    say(f"{len(failed)} failed beside other tests and run again alone; each is a fault to look at:")
    for name in failed:
        say(f"  {name}")
        print(name)
    return 0


def say(line: str) -> None:
    """Writes for the reader: the names alone go to standard output."""
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main([Path(one) for one in sys.argv[1:]]))
