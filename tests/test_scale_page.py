"""What docs/scale.md shows for clusters is well formed: scripts by bash, manifests by YAML, options by the verbs."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.cli.helpers import privmix
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "scale.md"


def test_scripts_are_bash() -> None:
    scripts = blocks(PAGE, "bash")
    assert scripts
    for script in scripts:
        checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
        assert checked.returncode == 0, checked.stderr
        assert "umask 077" in script
        assert "RAY_AUTH_MODE=token" in script


def test_manifests_are_yaml_and_closed() -> None:
    yaml = pytest.importorskip("yaml", reason="it comes with the developers' tools")
    (text,) = blocks(PAGE, "yaml")
    cluster = yaml.safe_load(text)
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    assert spec["headGroupSpec"]["rayStartParams"]["include-dashboard"] == "false"
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        settings = {one["name"]: one["value"] for container in pod["containers"] for one in container["env"]}
        assert settings["RAY_AUTH_MODE"] == "token"


def test_commands_for_clusters_have_the_options_that_verbs_have() -> None:
    shown = "\n".join([*blocks(PAGE, "console"), *blocks(PAGE, "bash")]).replace("\\\n", " ")
    commands = re.findall(r"^(?:\$ )?privmix (\S+) (.*)$", shown, re.MULTILINE)
    assert {verb for verb, _ in commands} == {"features", "release"}
    for verb, line in commands:
        said = privmix(verb, "--help").out
        for option in re.findall(r"--[a-z-]+", line):
            assert option in said, f"{verb} {option}"
