import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "outbox" / "run.py"


@pytest.mark.soak(
    small="tests/producer/relay/test_process.py::test_a_relay_killed_after_the_acknowledgement_doubles_the_id_and_loses_nothing"
)
def test_the_shop_of_the_example_loses_nothing_while_it_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={"PYTHONPATH": str(EXAMPLE.parents[2]), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the shop was killed") >= 3
    assert "32 orders were committed: 0 notifications lost, 0 of orders" in done.stdout
