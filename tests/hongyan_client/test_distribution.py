"""The distribution `hongyan-client`: what goes along, and that it works in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from backends.kafka.embedded import EmbeddedKafka
from client import vendoring
from message.envelope import decode
from tests.hongyan_client.looking import contents

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
TRACING = {"accepted_events", "drops", "events", "masks", "record_headers", "trace_records"}
MOST_MODULES = 240
"""Modules that `import hongyan_client` loads; most are of the standard library."""
PROGRAM = """
import sys
before = set(sys.modules)
import hongyan_client
from hongyan_client import Client, compose
loaded = len(set(sys.modules) - before)
assert not {"message", "tracing", "structlog", "sqlalchemy"} & set(sys.modules), sorted(sys.modules)
assert "confluent_kafka" not in sys.modules
with Client(sys.argv[1], topic_prefix="bare") as client:
    one = compose("sms.notice", ["+8613800000001"], content={"text": "hi"}, biz_id="o-1")
    assert client.send(one).result(30).topic == "bare.dispatch.sms.notice"
print(loaded)
"""


def test_what_goes_along_is_the_vocabulary_alone() -> None:
    modules = set(vendoring.closure(ROOT))
    traced = {name.partition(".")[2] for name in modules if name.startswith("tracing.")}
    assert traced <= TRACING
    assert {name.partition(".")[0] for name in modules} <= set(vendoring.ALLOWED)


def test_an_import_of_the_platform_is_refused(tmp_path: Path) -> None:
    for package in ("hongyan_client", "message", "backends"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "message" / "one.py").write_text("def f():\n    import backends.settings\n")
    (tmp_path / "hongyan_client" / "a.py").write_text("from message.one import f\n")
    with pytest.raises(vendoring.Stray, match=r"message/one\.py imports backends\.settings"):
        vendoring.closure(tmp_path)


def test_each_form_of_import_is_rewritten_or_refused() -> None:
    source = 'from message.ids import new_id\nNAMES = {"message.ids": 1}\n\n\ndef f():\n'
    source += "    from tracing.events import (\n        Stage,\n    )\n"
    assert vendoring.rewritten(source) == source.replace(
        "from message", "from hongyan_client._vendor.message"
    ).replace("from tracing", "from hongyan_client._vendor.tracing").replace(
        '"message.ids"', '"hongyan_client._vendor.message.ids"'
    )
    with pytest.raises(vendoring.Stray, match="cannot be rewritten"):
        vendoring.rewritten("import message.ids\n")
    with pytest.raises(vendoring.Stray, match="was not rewritten"):
        vendoring.rewritten("import os, message.ids\n")


def test_the_client_has_few_dependencies_in_the_versions_of_the_platform() -> None:
    client = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
    platform = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(client["dependencies"]) <= 5
    known = {*platform["dependencies"], *platform["optional-dependencies"]["worker"]}
    extras = [one for names in client["optional-dependencies"].values() for one in names]
    assert {*client["dependencies"], *extras} <= known
    assert client["version"] == platform["version"]


def run(*command: str) -> str:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("HONGYAN_", "PYTHON"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environ)
    if done.returncode and "uv" in command[0] and not os.environ.get("HONGYAN_REQUIRE_STACK"):
        pytest.skip(f"packages cannot be installed here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_made_from_the_sdist_holds_the_same_files_and_the_licence(tmp_path: Path) -> None:
    names: list[set[str]] = []
    for folder, kinds in (("tree", ["--wheel"]), ("sdist", ["--sdist", "--wheel"])):
        out = tmp_path / folder
        source = ROOT / "client"
        for kind in kinds:
            run(str(UV), "build", "--quiet", kind, "--out-dir", str(out), str(source))
            if kind == "--sdist":
                (archive,) = out.glob("*.tar.gz")
                with tarfile.open(archive) as packed:
                    packed.extractall(tmp_path / "unpacked", filter="data")
                (source,) = (tmp_path / "unpacked").iterdir()
        (wheel,) = out.glob("*.whl")
        with ZipFile(wheel) as opened:
            names.append(set(opened.namelist()))
            (licence,) = (name for name in names[-1] if name.endswith("licenses/LICENSE"))
            assert opened.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert names[0] == names[1]
    assert "hongyan_client/_vendor/message/envelope.py" in names[1]


def test_it_sends_from_an_empty_environment(cluster: EmbeddedKafka, tmp_path: Path) -> None:
    run(str(UV), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path), str(ROOT / "client"))
    (wheel,) = tmp_path.glob("*.whl")
    assert "hongyan_client/py.typed" in ZipFile(wheel).namelist()
    home = tmp_path / "empty"
    run(str(UV), "venv", "--quiet", "--python", sys.executable, str(home))
    python = str(home / "bin" / "python")
    run(str(UV), "pip", "install", "--quiet", "--python", python, str(wheel))
    loaded = int(run(python, "-I", "-c", PROGRAM, cluster.bootstrap))
    assert loaded <= MOST_MODULES  # their time is measured by `hongyan bench client`
    found = contents(cluster.bootstrap, "bare.dispatch.sms.notice", 1)
    assert {decode(record.value()).biz_id for record in found} == {"o-1"}
