"""URLs of a business's database."""

import pytest

from hongyan_client.outbox.engine import outbox_url


def test_an_at_in_a_password_is_refused_since_its_end_would_be_the_host() -> None:
    with pytest.raises(ValueError, match="%40") as caught:
        outbox_url("mysql://u:t0p@s3cret@h:5/d")
    assert "s3cret" not in str(caught.value)
    assert outbox_url("mysql://u:t0p%40s3cret@h:5/d").password == "t0p@s3cret"
