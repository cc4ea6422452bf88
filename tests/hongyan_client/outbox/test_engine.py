"""URLs of a business's database."""

import pytest

from hongyan_client.outbox.engine import outbox_engine, outbox_url
from tests.backends.sql.test_database import arguments


def test_an_at_in_a_password_is_refused_since_its_end_would_be_the_host() -> None:
    with pytest.raises(ValueError, match="%40") as caught:
        outbox_url("mysql://u:t0p@s3cret@h:5/d")
    assert "s3cret" not in str(caught.value)
    assert outbox_url("mysql://u:t0p%40s3cret@h:5/d").password == "t0p@s3cret"


def test_several_hosts_reach_the_driver_as_sqlalchemy_reads_them() -> None:
    engine = outbox_engine(
        "postgresql://u:p@/d?host=127.0.0.1:5&host=127.0.0.2:6&connect_timeout=9"
    )
    found = arguments(engine)
    assert (found["host"], found["port"]) == ("127.0.0.1,127.0.0.2", "5,6")
    assert (found["connect_timeout"], found["application_name"]) == ("9", "hongyan-relay")
