"""Whether so few tests failed that they are worth a run of their own; run with pytest's list of them.

Exits with 1, and says why, where none is listed (pytest itself ended) or more than `FEW`.
"""

import json
import sys
from pathlib import Path

FEW = 3


def main(listed: Path) -> int:
    failed = list(json.loads(listed.read_text())) if listed.exists() else []
    if not 0 < len(failed) <= FEW:
        print(f"{len(failed)} tests failed; up to {FEW} are run again alone, not these.")
        return 1
    print(
        f"{len(failed)} failed beside other tests and run again alone; each is a fault to look at:"
    )
    for name in failed:
        print(f"  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
