"""Networks with batch norm, for training without privacy; one file each."""

from __future__ import annotations

from privmix.research.poisoning.victims.networks.base import NETWORKS, Network, build

__all__ = ["NETWORKS", "Network", "build"]
