"""Networks with batch norm, as they are trained where nobody asks for privacy; one file each."""

from __future__ import annotations

from privmix.research.poisoning.victims.networks.base import NETWORKS, Network, build

__all__ = ["NETWORKS", "Network", "build"]
