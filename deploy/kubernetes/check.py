# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the objects of a kustomization against the programs that they run.

usage: check.py VERSION < OBJECTS.yaml

Objects are what `kubectl kustomize` prints. Flags are checked by the programs
below the folder in which the script is called.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import yaml

PROGRAMS = {
    "causeway-coordinator": "server/causeway-coordinator",
    "causeway-worker": "worker/causeway-worker",
}


def check(holds: object, message: str) -> None:
    if not holds:
        sys.exit(f"check.py: {message}")


def check_flags(container: dict, values: dict[str, str]) -> None:
    """Lets the program check its arguments, without the files they name."""
    arguments = [
        re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], argument)
        for argument in container["args"]
    ]
    program = PROGRAMS[container["command"][0]]
    done = subprocess.run(
        [program, *arguments, "--only_check_args"],
        capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"{program}: {done.stderr}")


def check_pods(kind: str, template: dict, values: dict[str, str]) -> None:
    spec = template["spec"]
    container = spec["containers"][0]
    security = container["securityContext"]
    check(spec["securityContext"]["runAsNonRoot"], f"{kind} runs as root")
    check(security["readOnlyRootFilesystem"] and
          not security["allowPrivilegeEscalation"] and
          security["capabilities"]["drop"] == ["ALL"],
          f"{kind} may do more than it needs")
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    check({volume["name"] for volume in spec["volumes"]} <= mounted,
          f"{kind} does not mount all volumes")
    ports = {port["name"]: port["containerPort"]
             for port in container["ports"]}
    metrics = f"--metrics_listen=0.0.0.0:{ports['metrics']}"
    check(metrics in container["args"],
          f"{kind} serves no probes on its port")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = "/readyz" if probe == "readinessProbe" else "/healthz"
        needed = kind == "StatefulSet" or probe == "readinessProbe"
        check(not needed or container[probe]["httpGet"] ==
              {"path": path, "port": "metrics"}, f"{kind} has no {probe}")
    check_flags(container, values)


def check_monitoring(objects: list[dict]) -> None:
    """Checks that services are scraped as the jobs that the alerts name."""
    known = set(re.findall(r'\bjob="([^"]+)"', json.dumps(
        [o for o in objects if o["kind"] == "PrometheusRule"])
        .replace('\\"', '"')))
    scraped = set()
    for monitor in (o for o in objects if o["kind"] == "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        port = monitor["spec"]["endpoints"][0]["port"]
        for service in (o for o in objects if o["kind"] == "Service"):
            labels = service["metadata"]["labels"]
            if not wanted <= labels.items() or not any(
                    p["name"] == port for p in service["spec"]["ports"]):
                continue
            job = labels.get(monitor["spec"]["jobLabel"])
            check(job, f"{service['metadata']['name']} names no job")
            scraped.add(job)
        check(scraped, "the ServiceMonitor finds no service")
    check(known <= scraped, f"nobody is scraped as one of {known}")


def main() -> None:
    version = sys.argv[1]
    objects = list(yaml.safe_load_all(sys.stdin))
    names = {(o["kind"], o["metadata"]["name"]) for o in objects}
    check(len(names) == len(objects), "two objects have one name")
    values = {"RANK": "0", "ADDRESS": "10.0.0.1", "POD": "coordinator-0"}
    for o in objects:
        if o["kind"] == "ConfigMap":
            values.update(o["data"])
    labels = []
    for o in objects:
        if o["kind"] not in ("StatefulSet", "Job"):
            continue
        template = o["spec"]["template"]
        labels.append(template["metadata"]["labels"])
        image = template["spec"]["containers"][0]["image"]
        check(image.endswith(f"/causeway:{version}"),
              f"{image} is not of version {version}")
        check_pods(o["kind"], template, values)
    check(labels, "there is nothing to run")
    for o in objects:
        selector = o["spec"].get("selector") if "spec" in o else None
        if o["kind"] in ("Service", "PodDisruptionBudget"):
            selector = selector.get("matchLabels", selector)
            # Kubernetes gives each pod this label.
            selector.pop("statefulset.kubernetes.io/pod-name", None)
            check(any(selector.items() <= pods.items() for pods in labels),
                  f"{o['kind']} {o['metadata']['name']} selects no pods")
    check_monitoring(objects)
    print(f"{len(objects)} objects")


if __name__ == "__main__":
    main()
