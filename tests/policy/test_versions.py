"""Applied policies in the database: added one after the other, the newest in force."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from backends.settings import DatabaseSettings, Settings
from backends.sql.database import Database, database_url
from backends.sql.errors import SqlAway
from policy.active import in_force
from policy.loading import PolicyError
from policy.versions import Overtaken, Versions
from sending.policy_reload import in_force_at_start
from tests.harness.databases import upgraded

ONE = "[defaults]\nthreads = 1\n"
TWO = "[defaults]\nthreads = 2\n"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "versions" in metafunc.fixturenames:
        metafunc.parametrize(
            "kind", ["sqlite_database", "ledger_database"], ids=["sqlite", "postgresql"]
        )


@pytest.fixture
def settings(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> Settings:
    url = request.getfixturevalue(kind)
    return Settings(base=str(tmp_path), database=DatabaseSettings(url=url))


@pytest.fixture
def versions(settings: Settings) -> Iterator[Versions]:
    upgraded(settings)
    database = Database(database_url(settings.database.url, settings.base), pool_size=1)
    yield Versions(database)
    database.close()


def test_before_any_was_applied_the_file_counts(versions: Versions, settings: Settings) -> None:
    assert versions.newest() is None
    assert in_force(settings, versions)[1:] == (0, "", False)
    (Path(settings.base) / "policy.toml").write_text(ONE)
    now = in_force(settings, versions)
    assert (now.policy.version[:5], now.number, now.text, now.file_differs) == (
        "file:",
        0,
        ONE,
        False,
    )


def test_the_newest_counts_and_a_file_that_differs_is_told(
    versions: Versions, settings: Settings
) -> None:
    file = Path(settings.base) / "policy.toml"
    file.write_text(ONE)
    first = versions.add(ONE, "li", base=0, before=ONE)
    assert (first.number, first.name[:3], first.author, first.diff) == (1, "v1:", "li", "")
    assert not in_force(settings, versions).file_differs
    second = versions.add(TWO, "wang", base=1, before=ONE)
    now = in_force(settings, versions)
    assert (now.number, now.policy.version, now.file_differs) == (2, second.name, True)
    assert now.policy.lanes["sms.notice"].threads == 2


def test_a_broken_file_is_an_error_even_where_it_does_not_count(
    versions: Versions, settings: Settings
) -> None:
    versions.add(ONE, "li", base=0, before="")
    (Path(settings.base) / "policy.toml").write_text("[default]\n")
    with pytest.raises(PolicyError, match="did you mean defaults"):
        in_force(settings, versions)


def test_what_changed_is_kept_with_author_and_time(versions: Versions) -> None:
    versions.add(ONE, "li", base=0, before="")
    second = versions.add(TWO, "wang", base=1, before=ONE)
    assert second.diff.splitlines() == [
        "--- v1",
        "+++ v2",
        "@@ -1,2 +1,2 @@",
        " [defaults]",
        "-threads = 1",
        "+threads = 2",
    ]
    assert versions.history(9) == [second, versions.numbered(1)]
    assert versions.history(1) == [second]
    assert second.at > 1_700_000_000_000
    assert versions.numbered(3) is None


def test_only_what_is_newer_is_given(versions: Versions) -> None:
    versions.add(ONE, "li", base=0, before="")
    second = versions.add(TWO, "wang", base=1, before=ONE)
    assert versions.newer_than(0) == versions.newer_than(1) == second
    assert versions.newer_than(2) is None


def test_of_two_who_apply_at_once_the_second_has_to_look_again(versions: Versions) -> None:
    versions.add(ONE, "li", base=0, before="")
    with pytest.raises(Overtaken):
        versions.add(TWO, "wang", base=0, before="")
    assert [version.author for version in versions.history(9)] == ["li"]


def test_a_version_that_names_an_unknown_account_says_which_version_and_line(
    versions: Versions, settings: Settings
) -> None:
    bad = versions.add('[defaults]\naccounts = ["nobody"]\n', "li", base=0, before="")
    with pytest.raises(PolicyError, match=f"^{bad.name}:2: defaults.accounts: account 'nobody'"):
        in_force(settings, versions)


def test_the_text_of_a_file_is_kept_once_and_found_by_its_version(
    versions: Versions, settings: Settings
) -> None:
    for _ in range(2):
        now = in_force_at_start(settings, versions)
        assert now.policy.version == "default"
    (Path(settings.base) / "policy.toml").write_text(ONE)
    of_file = in_force_at_start(settings, versions).policy.version
    second = versions.add(TWO, "li", base=0, before=ONE)
    (Path(settings.base) / "policy.toml").write_text("[defaults]\nthreads = 7\n")
    assert in_force_at_start(settings, versions).number == 1  # the file has no effect
    every = [of_file, second.name, "default", "file:gone"]
    assert versions.texts(every) == {of_file: ONE, second.name: TWO, "default": ""}
    assert versions.texts([]) == {}
    assert [one.number for one in versions.history(9)] == [1]


def test_a_file_put_back_to_an_earlier_text_is_in_force_from_its_return_on(
    versions: Versions, settings: Settings
) -> None:
    database = Database(database_url(settings.database.url, settings.base), pool_size=1)

    def began(content: str, at: int) -> int:
        """Starts a process under that file. Returns the time of its text, and then sets it to `at`."""
        (Path(settings.base) / "policy.toml").write_text(content)
        version = in_force_at_start(settings, versions).policy.version
        with database.begin() as connection:
            of_one = {"version": version}
            found = connection.execute(
                text("SELECT at FROM policy_texts WHERE version = :version"), of_one
            )
            began_at = int(found.scalar_one())
            connection.execute(
                text("UPDATE policy_texts SET at = :at WHERE version = :version"),
                {**of_one, "at": at},
            )
        return began_at

    assert began(ONE, at=10) > 30
    assert began(ONE, at=10) == 10  # a further process of the same file
    assert began(TWO, at=20) > 30
    assert began(ONE, at=30) > 30
    assert began(ONE, at=30) == 30
    database.close()


def test_a_process_starts_though_the_text_cannot_be_kept(
    versions: Versions, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(version: str, content: str) -> None:
        raise SqlAway("read only")

    monkeypatch.setattr(versions, "keep", refuse)
    assert in_force_at_start(settings, versions).number == 0
