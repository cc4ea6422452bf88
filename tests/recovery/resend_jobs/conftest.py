import pytest

from tests.idempotency.making import World
from tests.recovery.resend_jobs.jobfield import JobField


@pytest.fixture
def field(world: World) -> JobField:
    return JobField(world)
