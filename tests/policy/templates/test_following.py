"""Applied templates: the file counts until the first, a running process follows later ones."""

from pathlib import Path

import pytest

from backends.settings import Settings
from policy.templates.active import ActiveTemplates, TemplateFollower, templates_in_force
from policy.templates.loading import TemplateFileError, load_source
from policy.templates.page import TemplateSource
from policy.templates.versions import TemplateVersion

TEXT = '[templates."a"]\nchannel = "email"\nsubject = "One"\n'


def version(number: int, text: str) -> TemplateVersion:
    return TemplateVersion(number, f"t{number}:x", "lin", 1, TemplateSource(text, {}), "")


class Kept:
    """Versions in memory."""

    def __init__(self) -> None:
        self.found: list[TemplateVersion] = []
        self.fault: Exception | None = None

    def newer_than(self, number: int) -> TemplateVersion | None:
        if self.fault is not None:
            raise self.fault
        newer = [one for one in self.found if one.number > number]
        return newer[-1] if newer else None

    def newest(self) -> TemplateVersion | None:
        return self.newer_than(0)


def names(follower: TemplateFollower) -> list[str]:
    return [one.name for one in follower.current]


def test_the_file_counts_until_a_version_is_applied(tmp_path: Path) -> None:
    (tmp_path / "templates.toml").write_text(TEXT)
    settings, kept = Settings(base=str(tmp_path)), Kept()
    now = templates_in_force(settings, kept)  # type: ignore[arg-type]
    assert (now.number, now.file_differs, len(now.templates)) == (0, False, 1)
    kept.found.append(version(1, TEXT.replace('"a"', '"b"')))
    now = templates_in_force(settings, kept)  # type: ignore[arg-type]
    assert (now.number, now.file_differs) == (1, True)
    assert [one.name for one in now.templates] == ["b"]


def test_a_process_follows_a_version_and_keeps_its_own_in_trouble(tmp_path: Path) -> None:
    (tmp_path / "templates.toml").write_text(TEXT)
    templates, source = load_source(tmp_path / "templates.toml")
    kept = Kept()
    follower = TemplateFollower(ActiveTemplates(templates, 0, source, False), kept, {})
    follower.look()
    assert names(follower) == ["a"]
    kept.found.append(version(1, TEXT.replace('"a"', '"b"')))
    kept.fault = OSError("away")
    follower.look()
    assert names(follower) == ["a"]
    kept.fault = None
    follower.look()
    assert (names(follower), follower.number) == (["b"], 1)
    kept.found.append(version(2, "[templates.c]\n"))
    follower.look()
    assert (names(follower), follower.number) == (["b"], 1)


def test_a_version_reads_no_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.txt").write_text("secret")
    text = TEXT.replace('"One"', '{ file = "secret.txt" }')
    kept = Kept()
    kept.found.append(version(1, text))
    with pytest.raises(TemplateFileError, match="no such file in this version"):
        templates_in_force(Settings(base=str(tmp_path)), kept)  # type: ignore[arg-type]
