"""The processes of deploy/, with command, environment and files exactly as compose.yaml, the rendered
manifests or the systemd units give them."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from deploy.local.layout import REPOSITORY
from tests.deploy.rendering import manifests

DEPLOY: Final = REPOSITORY / "deploy"
HEALTH_PORT: Final = 9464
_HOST: Final = "host-1"
_CREDENTIALS: Final = "/run/credentials/unit"
_WITHOUT_ACCOUNTS: Final = ("hongyan-migrate", "hongyan-relay")
_SECTION = re.compile(r"^\[(\w+)\]$")


@dataclass(frozen=True)
class Launch:
    """One process, with paths and host names as in its container or on its host."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    files: Mapping[str, str]
    """Text by path."""
    folders: frozenset[str] = frozenset()
    """Writable folders."""
    ready: tuple[str, int] | None = None
    """Page, empty for none, and port that show that it is ready; None for a process that runs once."""
    grace_s: float = 0.0
    """Time from SIGTERM to SIGKILL."""
    healthcheck: list[str] = field(default_factory=list)
    """Command of the image that shows its health."""


class Image:
    """The final stage of deploy/Dockerfile."""

    def __init__(self, text: str) -> None:
        stage = text[text.rindex("\nFROM ") :].replace("\\\n", " ")
        lines = [line.strip() for line in stage.splitlines()]
        self._env = next(line for line in lines if line.startswith("ENV ")).removeprefix("ENV ")
        entry = next(line for line in lines if line.startswith("ENTRYPOINT "))
        self.entrypoint: list[str] = json.loads(entry.removeprefix("ENTRYPOINT "))
        exposed = next(line for line in lines if line.startswith("EXPOSE "))
        self.ports = frozenset(map(int, exposed.split()[1:]))
        check = next(line for line in lines if line.startswith("HEALTHCHECK "))
        self.healthcheck: list[str] = json.loads(check.partition(" CMD ")[2])

    def environment(self, image: str) -> dict[str, str]:
        """Returns the variables of the image of that name, such as `hongyan-recovery:0.1.0`."""
        extra = image.rpartition("/")[2].partition(":")[0].removeprefix("hongyan-")
        pairs = (one.partition("=") for one in shlex.split(self._env))
        return {name: value.replace("$EXTRA", extra) for name, _, value in pairs}


IMAGE: Final = Image((DEPLOY / "Dockerfile").read_text("utf-8"))


# -- compose.yaml --


def of_compose() -> dict[str, Launch]:
    """Returns our processes of deploy/compose.yaml by the name of their service."""
    file = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    ours = {n: s for n, s in file["services"].items() if s["image"].startswith("hongyan-")}
    return {name: _of_service(name, service, file) for name, service in ours.items()}


def _of_service(name: str, service: Mapping[str, Any], file: Mapping[str, Any]) -> Launch:
    given = [(file["configs"], one) for one in service["configs"]]
    given += [(file["secrets"], one) for one in service["secrets"]]
    runs_on = "restart" in service
    port = HEALTH_PORT if name != "simulator" else 8899
    return Launch(
        name=name,
        command=[*service.get("entrypoint", IMAGE.entrypoint), *service["command"]],
        environment=IMAGE.environment(service["image"]) | service["environment"],
        files={
            one["target"]: (DEPLOY / table[one["source"]]["file"]).read_text("utf-8")
            for table, one in given
        },
        folders=frozenset(service["tmpfs"]),
        ready=(("/readyz" if name != "simulator" else ""), port) if runs_on else None,
        grace_s=float(service.get("stop_grace_period", "10s").removesuffix("s")),
        healthcheck=IMAGE.healthcheck if runs_on and "healthcheck" not in service else [],
    )


# -- Kubernetes --


def of_overlay(
    overlay: str, secrets: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, Launch]:
    """Returns the containers of our images in an overlay, by container, those that prepare first. `secrets`
    are the keys of Secrets that the overlay does not make, by the Secret's name."""
    documents = manifests(overlay)
    volumes = {
        (one["kind"], one["metadata"]["name"]): _data(one)
        for one in documents
        if one["kind"] in ("ConfigMap", "Secret")
    }
    volumes |= {("Secret", name): dict(keys) for name, keys in (secrets or {}).items()}
    found = {}
    for document in documents:
        template = document.get("spec", {}).get("template")
        if not template or document["kind"] not in ("Job", "Deployment", "StatefulSet"):
            continue
        pod = template["spec"]
        name = f"{document['metadata']['name']}-0"
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            if "hongyan-" in container["image"]:
                found[f"{name}/{container['name']}"] = _of_container(name, pod, container, volumes)
    return found


def _data(document: Mapping[str, Any]) -> dict[str, str]:
    data: dict[str, str] = document["data"]
    if document["kind"] == "ConfigMap":
        return data
    return {key: base64.b64decode(text).decode() for key, text in data.items()}


def _of_container(
    name: str,
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    data: Mapping[tuple[str, str], Mapping[str, str]],
) -> Launch:
    volumes = {one["name"]: one for one in pod["volumes"]}
    files, folders = {}, set()
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        if "emptyDir" in volume:
            folders.add(mount["mountPath"])
        for key, text in _mounted(volume, data).items():
            files[f"{mount['mountPath']}/{key}"] = text
    own = {one["name"]: one.get("value", name) for one in container.get("env", ())}
    entry = container.get("command", IMAGE.entrypoint)
    return Launch(
        name=container["name"],
        command=[*entry, *container.get("args", ())],
        environment=IMAGE.environment(container["image"]) | own,
        files=files,
        folders=frozenset(folders),
        ready=_probed(container),
        grace_s=float(pod.get("terminationGracePeriodSeconds", 30)),
    )


def _mounted(
    volume: Mapping[str, Any], data: Mapping[tuple[str, str], Mapping[str, str]]
) -> Mapping[str, str]:
    if "configMap" in volume:
        return data["ConfigMap", volume["configMap"]["name"]]
    if "secret" in volume:
        return data.get(("Secret", volume["secret"]["secretName"]), {})
    return {}


def _probed(container: Mapping[str, Any]) -> tuple[str, int] | None:
    probe = container.get("readinessProbe")
    if probe is None:
        return None
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    asked = probe.get("httpGet") or probe["tcpSocket"]
    return asked.get("path", ""), ports[asked["port"]]


# -- systemd --


def of_units(secrets: Mapping[str, str]) -> dict[str, Launch]:
    """Returns the services of deploy/systemd by unit, with accounts.conf as the drop-in of those that read
    accounts; of the worker, instance 1. `secrets` are the files of /etc/hongyan/secrets."""
    folder = DEPLOY / "systemd"
    drop_in = _settings((folder / "accounts.conf").read_text("utf-8"))
    config = (folder / "hongyan.toml").read_text("utf-8")
    found = {}
    for path in sorted(folder.glob("*.service")):
        own = _settings(path.read_text("utf-8"))
        extra = [] if path.stem in _WITHOUT_ACCOUNTS else drop_in
        found[path.stem.rstrip("@")] = _of_unit(path.stem, [*own, *extra], config, secrets)
    return found


def _of_unit(
    name: str, settings: list[tuple[str, str]], config: str, secrets: Mapping[str, str]
) -> Launch:
    def all_of(key: str) -> Iterator[str]:
        for one, value in settings:
            if one == key:
                yield value.replace("%i", "1").replace("%H", _HOST).replace("%d", _CREDENTIALS)

    environment = dict(one.split("=", 1) for one in all_of("Environment"))
    files = {environment["HONGYAN_CONFIG"]: config}
    for one in all_of("LoadCredential"):
        key, _, path = one.partition(":")
        files[f"{_CREDENTIALS}/{key}"] = secrets[path]
    return Launch(
        name=name,
        command=shlex.split(list(all_of("ExecStart"))[-1]),
        environment=environment,
        files=files,
        grace_s=float(next(all_of("TimeoutStopSec"), "90")),
    )


def _settings(text: str) -> list[tuple[str, str]]:
    """Returns key and value of each line of a unit, in order."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (
        line.partition("=")
        for line in lines
        if line and line[0] != "#" and not _SECTION.match(line)
    )
    return [(key, value) for key, _, value in pairs]
