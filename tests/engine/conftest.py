"""One Ray cluster for all tests of this folder: its start is slow."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from privmix.engine.cluster import _reread_token


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    # Before the first import: Ray reads these once.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of-this-test-" + os.urandom(16).hex()}
    ray = pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")
    from ray.cluster_utils import Cluster

    # Another test may have imported Ray before.
    _reread_token()
    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    made.add_node(**node)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()
    del os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"]
    _reread_token()


@pytest.fixture
def spare(cluster: Any) -> Iterator[Any]:
    """One more machine of the cluster, to be lost."""
    import ray

    node = cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    yield node
    if node in cluster.list_all_nodes():
        cluster.remove_node(node)
    # Until its loss is known: the next test may ask every machine.
    for _ in range(600):
        if sum(one["Alive"] for one in ray.nodes()) == len(cluster.list_all_nodes()):
            break
        time.sleep(0.1)
