"""What docs/large.md shows for clusters is well formed: scripts by bash, manifests by YAML, options by the verbs."""

import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from tests.cli.helpers import privmix
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "large.md"


def test_scripts_are_bash() -> None:
    scripts = blocks(PAGE, "bash")
    assert scripts
    for script in scripts:
        checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
        assert checked.returncode == 0, checked.stderr
        assert "umask 077" in script
        assert "RAY_AUTH_MODE=token" in script


def test_the_commands_for_tls_make_certificates_that_hold(tmp_path: Path) -> None:
    if not (which("openssl") and subprocess.run("hostname -I | grep .", shell=True, check=False).returncode == 0):
        pytest.skip("the commands are openssl's, and a hostname's that tells addresses")
    (script,) = [one for one in blocks(PAGE, "bash") if "openssl req -x509" in one]
    script += '\nopenssl verify -CAfile "$RAY_TLS_CA_CERT" -verify_ip "$address" "$RAY_TLS_SERVER_CERT"\nls -l node.key'
    made = subprocess.run(["bash", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "node.pem: OK" in made.stdout
    assert "-rw-------" in made.stdout


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
    assert {verb for verb, _ in commands} == {"extract-features", "release"}
    for verb, line in commands:
        said = privmix(verb, "--help-all").out
        for option in re.findall(r"--[a-z-]+", line):
            assert option in said, f"{verb} {option}"
