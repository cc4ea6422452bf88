"""The rendered manifests and compose.yaml keep the rules of docs/deploy.md."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from message.vocabulary import CHANNELS, LANES, lanes_matching
from tests.deploy import rendering
from tests.deploy.launches import DEPLOY, of_compose, of_overlay
from tests.deploy.rendering import OVERLAYS, manifests

CONTROLLERS = ("Deployment", "StatefulSet")
SERVING = ("worker", "recovery", "receipts", "gateway", "console", "lookback", "relay")


def named(overlay: str, kind: str, name: str) -> dict[str, Any]:
    """Returns one manifest."""
    return next(
        one
        for one in manifests(overlay)
        if one["kind"] == kind and one["metadata"]["name"].startswith(name)
    )


def config(overlay: str) -> dict[str, Any]:
    """Returns the hongyan.toml of an overlay."""
    return tomllib.loads(named(overlay, "ConfigMap", "hongyan-config")["data"]["hongyan.toml"])


def ours(overlay: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yields component, pod and container of each container with our image."""
    for one in manifests(overlay):
        spec = one.get("spec", {})
        template = spec.get("jobTemplate", {"spec": spec})["spec"].get("template")
        if template and one["kind"] in ("Job", "CronJob", *CONTROLLERS):
            pod = template["spec"]
            for container in (*pod.get("initContainers", ()), *pod["containers"]):
                if "hongyan-" in container["image"]:
                    yield one["metadata"]["name"], pod, container


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_rendering_is_of_these_sources(overlay: str) -> None:
    digest, _text = rendering.kept(overlay)
    assert digest == rendering.digest(overlay), "run `python -m tests.deploy.rendering`"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_renders_the_same(overlay: str) -> None:
    command = rendering.program()
    if command is None:
        pytest.skip("neither kubectl nor kustomize is here; the digest is checked all the same")
    wanted = list(yaml.safe_load_all(rendering.render(overlay, command)))
    assert manifests(overlay) == wanted


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_our_containers_may_do_nothing_but_run(overlay: str) -> None:
    seen = set()
    for name, pod, container in ours(overlay):
        seen.add(name)
        locked = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
        assert container["securityContext"] == {**locked, "capabilities": {"drop": ["ALL"]}}
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert not container["image"].endswith(":latest")
        assert ":" in container["image"]
    assert {f"hongyan-{kind}" for kind in (*SERVING, "migrate")} <= seen


@pytest.mark.parametrize(
    ("overlay", "kind"),
    [*((overlay, kind) for overlay in OVERLAYS for kind in SERVING), ("production", "campaigns")],
)
def test_each_service_is_probed_spread_and_drained(overlay: str, kind: str) -> None:
    of_kind = [(p, c) for n, p, c in ours(overlay) if n == f"hongyan-{kind}" and c["name"] == kind]
    [(pod, container)] = of_kind
    pages = {key: container[key]["httpGet"]["path"] for key in container if key.endswith("Probe")}
    live = {"startupProbe": "/healthz", "livenessProbe": "/healthz"}
    assert pages == {**live, "readinessProbe": "/readyz"}
    keys = [one["topologyKey"] for one in pod["topologySpreadConstraints"]]
    assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    drain = config(overlay).get(kind, {}).get("drain_s", 0)
    assert pod["terminationGracePeriodSeconds"] > drain
    budget = named(overlay, "PodDisruptionBudget", f"hongyan-{kind}")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"]["app.kubernetes.io/component"] == kind


def test_console_and_campaigns_see_the_same_crowd_files() -> None:
    folders = set()
    for name, pod, container in ours("production"):
        variables = {one["name"]: one.get("value", "") for one in container.get("env", ())}
        if folder := variables.get("HONGYAN_CAMPAIGNS__FOLDER"):
            [mount] = [one for one in container["volumeMounts"] if one["mountPath"] == folder]
            [volume] = [one for one in pod["volumes"] if one["name"] == mount["name"]]
            claim = volume["persistentVolumeClaim"]["claimName"]
            folders.add((name, folder, claim, mount.get("readOnly", False)))
    assert folders == {
        ("hongyan-console", "/crowds", "hongyan-crowds", False),
        ("hongyan-campaigns", "/crowds", "hongyan-crowds", True),
    }
    claim = named("production", "PersistentVolumeClaim", "hongyan-crowds")["spec"]
    assert claim["accessModes"] == ["ReadWriteMany"]


def policies_for(overlay: str, labels: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yields what each NetworkPolicy says that selects a pod with these labels."""
    for one in manifests(overlay):
        if one["kind"] == "NetworkPolicy":
            selector = one["spec"]["podSelector"]
            wanted = selector.get("matchLabels", {}).items() <= labels.items()
            among = selector.get("matchExpressions", ())
            if wanted and all(labels.get(each["key"]) in each["values"] for each in among):
                yield one["spec"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_relays_share_an_outbox_and_reach_the_databases_that_may_have_one(overlay: str) -> None:
    spec = named(overlay, "Deployment", "hongyan-relay")["spec"]
    assert spec["replicas"] > 1
    found = list(policies_for(overlay, spec["template"]["metadata"]["labels"]))
    rules = [rule for one in found for rule in one.get("egress", ())]
    ports = {port["port"] for rule in rules for port in rule.get("ports", ())}
    assert {*(5432, 3306), 9092, 443} <= ports, "PostgreSQL and MySQL, Kafka, the webhook of alerts"


def test_every_kind_of_process_is_watched_and_may_post_its_alerts() -> None:
    kinds = {
        one["metadata"]["labels"]["app.kubernetes.io/component"]
        for one in manifests("production")
        if one["kind"] in CONTROLLERS
    }
    assert kinds == {*SERVING, "campaigns"}
    watched = named("production", "PodMonitor", "hongyan")["spec"]["selector"]
    outward = named("production", "NetworkPolicy", "hongyan-providers")["spec"]["podSelector"]
    for selector in (watched, outward):
        assert {*selector["matchExpressions"][0]["values"]} == kinds


def test_one_run_of_the_spark_jobs_at_a_time() -> None:
    spec = named("production", "CronJob", "hongyan-spark")["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    job = spec["jobTemplate"]["spec"]
    assert job["backoffLimit"] == 0
    [container] = job["template"]["spec"]["containers"]
    assert container["args"] == ["spark", "run"]
    [volume] = [one for one in container["volumeMounts"] if one["name"] == "warehouse"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables["HONGYAN_SPARK__WAREHOUSE"] == volume["mountPath"]
    assert "hongyan-spark" in {name for name, _pod, _container in ours("production")}


def test_a_worker_is_a_static_member_under_its_pods_name() -> None:
    launch = of_overlay("demo")["hongyan-worker-0/worker"]
    assert launch.environment["HONGYAN_KAFKA__GROUP_INSTANCE_ID"] == "hongyan-worker-0"


def test_the_demo_has_an_account_for_every_channel_and_every_secret_that_it_names() -> None:
    found = config("demo")
    assert {*found["accounts"]} == {*CHANNELS}
    secret = named("demo", "Secret", "hongyan-secrets")["data"]
    text = named("demo", "ConfigMap", "hongyan-config")["data"]["hongyan.toml"]
    files = {part.partition('"')[0] for part in text.split("/run/secrets/hongyan/")[1:]}
    assert files == {*secret}
    assert all(base64.b64decode(one) for one in secret.values())


def test_no_process_of_production_gets_a_secret_from_the_repository() -> None:
    assert not [one for one in manifests("production") if one["kind"] == "Secret"]
    folder = rendering.KUBERNETES / "overlays" / "production"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("hongyan.toml", "kustomization.yaml", "policy.toml")
    ]


def partitions(overlay: str) -> int:
    """Returns the partitions of each lane."""
    command = of_overlay(overlay, {})["hongyan-migrate-0/topics"].command
    return int(command[command.index("--partitions") + 1])


def test_autoscaling_never_passes_the_partitions_of_a_lane() -> None:
    scaled = named("production", "ScaledObject", "hongyan-worker")["spec"]
    assert 1 <= scaled["minReplicaCount"] <= scaled["maxReplicaCount"] <= partitions("production")
    assert scaled["fallback"]["replicas"] <= scaled["maxReplicaCount"]
    served = lanes_matching(config("production")["worker"]["lanes"])
    asked = [one["metadata"] for one in scaled["triggers"]]
    assert {one["topic"] for one in asked} == {lane.topic() for lane in served}
    assert {one["allowIdleConsumers"] for one in asked} == {"false"}
    assert {one["bootstrapServers"] for one in asked} == {
        config("production")["kafka"]["bootstrap"]
    }
    assert "replicas" not in named("production", "StatefulSet", "hongyan-worker")["spec"]


def test_every_worker_of_the_demo_has_partitions_of_every_lane() -> None:
    workers = named("demo", "StatefulSet", "hongyan-worker")["spec"]["replicas"]
    assert workers <= partitions("demo")
    assert len(LANES) == 3 * len(CHANNELS)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_pod_of_ours_is_open_to_the_network(overlay: str) -> None:
    spec = named(overlay, "NetworkPolicy", "hongyan")["spec"]
    assert spec["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "hongyan"}}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert all("ports" in rule for rule in (*spec["ingress"], *spec["egress"]))


def test_compose_starts_processes_after_what_they_need_and_opens_loopback_alone() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    for kind in SERVING:
        topics = services[kind]["depends_on"]["topics"]
        assert topics == {"condition": "service_completed_successfully"}
    migrate = services["topics"]["depends_on"]["migrate"]
    assert migrate == {"condition": "service_completed_successfully"}
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert ":" in service["image"]
    for launch in of_compose().values():
        found = services[launch.name]
        assert found["read_only"] is True
        assert found["cap_drop"] == ["ALL"]
    assert float(services["worker"]["stop_grace_period"][:-1]) > config("demo")["worker"]["drain_s"]
