"""Everything here runs against real servers: the whole stack, or it does not run."""

import pytest

from deploy.local.stack import Stack


@pytest.fixture(autouse=True)
def _real_servers(stack: Stack) -> Stack:
    return stack
