"""Every reader of a topic takes the headers of its records from one function: any other call may end it."""

import re

import pytest

from deploy.local.layout import REPOSITORY

_CALL = re.compile(r"\.headers\(\)")
_HOME = "backends/kafka/message_headers.py"
_FOLDERS = sorted(
    path.name
    for path in REPOSITORY.iterdir()
    if any(path.glob("*.py")) and path.name not in ("tests", "benchmarks", "examples")
)


@pytest.mark.parametrize("folder", _FOLDERS)
def test_no_module_asks_a_message_for_its_headers_itself(folder: str) -> None:
    files = sorted((REPOSITORY / folder).rglob("*.py"))
    calling = [path for path in files if _CALL.search(path.read_text())]
    assert [
        str(path.relative_to(REPOSITORY)) for path in calling if str(path).find(_HOME) < 0
    ] == []
