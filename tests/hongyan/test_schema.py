"""`hongyan schema`: the files of docs/schema/ are what the code exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from hongyan.commands.schema import FILES, PublishedForm
from tests.hongyan.conftest import Run

FOLDER = Path(__file__).parents[2] / "docs" / "schema"


@pytest.mark.parametrize("form", PublishedForm)
def test_the_committed_file_is_the_export(hongyan: Run, form: PublishedForm) -> None:
    said = hongyan("schema", form.value)
    assert said.code == 0
    file = FOLDER / FILES[form]
    assert said.out == file.read_text(), f"hongyan schema {form} > docs/schema/{file.name}"


def test_each_file_of_the_folder_is_exported() -> None:
    assert {file.name for file in FOLDER.iterdir()} == set(FILES.values())


def test_an_unknown_name_is_a_wrong_command_line(hongyan: Run) -> None:
    assert hongyan("schema", "envelop").code == 2
