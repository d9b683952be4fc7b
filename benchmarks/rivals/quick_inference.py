"""Mirror descent of mbi's graphical models on arrays: the same steps, without a compilation in each round.

AIM estimates its model again in each round, by a thousand steps over a junction tree. mbi compiles every new tree and
every marginal, 20 to 40 CPU seconds a round on Adult. ``estimate`` takes the same steps by NumPy; ``check`` compares
both on a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mbi
import networkx as nx
import numpy as np
from opt_einsum import contract

Clique = tuple[str, ...]


class Tree:
    """A junction tree of the measured cliques, in an order from the root on, and axes to sum over."""

    def __init__(self, domain: Any, measurements: Sequence[Any]) -> None:
        self.domain, self.total = domain, mbi.estimation.minimum_variance_unbiased_total(list(measurements))
        grouped: dict[Clique, list[Any]] = {}
        for one in measurements:
            grouped.setdefault(one.clique, []).append(one)
        self.measured = list(grouped)
        self.graph, _ = mbi.junction_tree.make_junction_tree(domain, self.measured)
        self.nodes, self.parents = self._order()
        self.weights = [sum(1 / one.stddev**2 for one in grouped[clique]) for clique in self.measured]
        self.means = [
            sum(np.asarray(one.noisy_measurement, float) / one.stddev**2 for one in grouped[clique]) / weight
            for clique, weight in zip(self.measured, self.weights, strict=True)
        ]
        self.means = [mean.reshape(self.sizes(one)) for mean, one in zip(self.means, self.measured, strict=True)]
        self.homes = [
            min((at for at, node in enumerate(self.nodes) if set(one) <= set(node)),
                key=lambda at: domain.size(self.nodes[at]))
            for one in self.measured
        ]  # fmt: skip

    def _order(self) -> tuple[list[Clique], list[int]]:
        nodes: list[Clique] = []
        parents: list[int] = []
        for part in nx.connected_components(self.graph):
            root = min(part)
            up = dict(nx.bfs_predecessors(self.graph, root))
            for node in [root, *up]:
                nodes.append(node)
                parents.append(nodes.index(up[node]) if node in up else 0)
                if node == root and len(nodes) > 1:
                    self.graph.add_edge(nodes[0], root)  # nothing shared: a message is a number
        return nodes, parents

    def sizes(self, clique: Clique) -> tuple[int, ...]:
        return tuple(self.domain.size((name,)) for name in clique)

    def marginals(self, potentials: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Of the tree's cliques, by one collection to the root and one distribution from it."""
        logs = [np.zeros(self.sizes(node)) for node in self.nodes]
        for one, home, values in zip(self.measured, self.homes, potentials, strict=True):
            logs[home] += spread(values, one, self.nodes[home])
        found = [np.exp(one - one.max(), out=one) for one in logs]
        sent: list[np.ndarray] = [np.ones(())] * len(found)
        for at in range(len(found) - 1, 0, -1):
            up = self.parents[at]
            shared = self.shared(at)
            message = summed(found[at], self.nodes[at], shared)
            sent[at] = message / message.max()
            found[up] *= spread(sent[at], shared, self.nodes[up])
        found[0] *= self.total / found[0].sum()
        for at in range(1, len(found)):
            shared = self.shared(at)
            wanted = summed(found[self.parents[at]], self.nodes[self.parents[at]], shared)
            own = summed(found[at], self.nodes[at], shared)
            found[at] *= spread(np.divide(wanted, own, out=np.zeros_like(own), where=own > 0), shared, self.nodes[at])
        if not all(np.isfinite(one).all() for one in found):
            raise FloatingPointError("a potential left the range of float64")
        return found

    def shared(self, at: int) -> Clique:
        return tuple(name for name in self.nodes[at] if name in self.nodes[self.parents[at]])

    def loss(self, beliefs: Sequence[np.ndarray]) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
        """Up to a constant; the measured marginals; the gradient."""
        found = [summed(beliefs[at], self.nodes[at], one) for one, at in zip(self.measured, self.homes, strict=True)]
        apart = [mine - mean for mine, mean in zip(found, self.means, strict=True)]
        slopes = [weight * one for weight, one in zip(self.weights, apart, strict=True)]
        return 0.5 * sum(float(np.vdot(a, b)) for a, b in zip(apart, slopes, strict=True)), found, slopes


def summed(values: np.ndarray, names: Clique, left: Clique) -> np.ndarray:
    """Marginal of a table on ``left``, in the order of ``left``."""
    found = values.sum(axis=tuple(axis for axis, name in enumerate(names) if name not in left))
    kept = [name for name in names if name in left]
    return found.transpose([kept.index(name) for name in left])


def spread(values: np.ndarray, names: Clique, over: Clique) -> np.ndarray:
    """A table on ``names``, with an axis of one state for each other column of ``over``."""
    kept = [name for name in over if name in names]
    values = values.transpose([names.index(name) for name in kept])
    shape = iter(values.shape)
    return values.reshape([next(shape) if name in names else 1 for name in over])


class Model:
    """What AIM asks of a model."""

    def __init__(self, tree: Tree, potentials: dict[Clique, np.ndarray], beliefs: list[np.ndarray]) -> None:
        self.tree, self.potentials, self.beliefs = tree, Potentials(potentials), beliefs
        self.domain, self.cliques = tree.domain, list(tree.measured)

    def project(self, names: Clique) -> mbi.Factor:
        tree, kept = self.tree, nx.Graph(self.tree.graph)
        kept.add_nodes_from(tree.nodes)
        while True:
            ends = [node for node in kept if kept.degree(node) == 1 and len(kept) > 1]
            spare = [n for n in ends if not (set(n) & set(names)) - set(next(iter(kept[n])))]
            if not spare:
                break
            kept.remove_node(spare[0])
        root = next(iter(kept))
        words: list[Any] = [self.beliefs[tree.nodes.index(root)], root]
        for up, node in nx.bfs_edges(kept, root):
            shared, belief = tuple(name for name in node if name in up), self.beliefs[tree.nodes.index(node)]
            own = spread(summed(belief, node, shared), shared, node)
            words += [np.divide(belief, own, out=np.zeros_like(belief), where=own > 0), node]
        found = contract(*words, tuple(names), optimize="greedy")
        return mbi.Factor(self.domain.project(names), found)

    def synthetic_data(self, rows: int | None = None) -> Any:
        """Rows by mbi's own sampler."""
        tree = self.tree
        logs = {node: np.zeros(tree.sizes(node)) for node in tree.nodes}
        for one, home in zip(tree.measured, tree.homes, strict=True):
            logs[tree.nodes[home]] += spread(self.potentials.values[one], one, tree.nodes[home])
        potentials, marginals = (
            mbi.CliqueVector(tree.domain, tree.nodes,
                             {node: mbi.Factor(tree.domain.project(node), table) for node, table in tables.items()})
            for tables in (logs, dict(zip(tree.nodes, self.beliefs, strict=True)))
        )  # fmt: skip
        model = mbi.MarkovRandomField(potentials=potentials, marginals=marginals, total=tree.total)
        return model.synthetic_data(rows)


class Potentials:
    def __init__(self, values: dict[Clique, np.ndarray]) -> None:
        self.values = values

    def expand(self, cliques: Sequence[Clique]) -> Potentials:
        return self  # a new clique starts at 0


def estimate(
    domain: Any, measurements: list[Any], *, iters: int, potentials: Potentials | None = None, **_: Any
) -> Model:
    """``mbi.estimation.MirrorDescent().estimate``, its line search included."""
    tree, start = Tree(domain, measurements), {} if potentials is None else potentials.values
    theta = [start.get(one, np.zeros(tree.sizes(one))) for one in tree.measured]
    alpha = 2 / (mbi.marginal_loss.calculate_l2_lipschitz_from_metadata(domain, measurements) * tree.total)
    beliefs = tree.marginals(theta)
    loss, found, slopes = tree.loss(beliefs)
    for _ in range(iters):
        theta2 = [one - alpha * slope for one, slope in zip(theta, slopes, strict=True)]
        beliefs2 = tree.marginals(theta2)
        loss2, found2, slopes2 = tree.loss(beliefs2)
        fall = sum(float(np.vdot(s, a - b)) for s, a, b in zip(slopes, found, found2, strict=True))
        if loss - loss2 >= 0.5 * alpha * fall:
            theta, beliefs, loss, found, slopes = theta2, beliefs2, loss2, found2, slopes2
            alpha *= 1.01
        else:
            alpha *= 0.5
    return Model(tree, dict(zip(tree.measured, theta, strict=True)), beliefs)


def check(domain: Any, data: Any, pairs: Sequence[Clique], steps: int = 50) -> None:
    """Compare with mbi on noisy measurements of some pairs, before a run."""
    rng = np.random.default_rng(0)
    measured = [
        mbi.LinearMeasurement(data.project(one).datavector() + rng.normal(0, 20, domain.size(one)), one, stddev=20.0)
        for one in [*((name,) for name in domain), *pairs]
    ]
    ours = estimate(domain, measured, iters=steps)
    theirs = mbi.estimation.MirrorDescent().estimate(domain, measured, iters=steps)
    for one in [*pairs, (pairs[0][0], pairs[-1][1])]:
        mine, other = (model.project(one).datavector() for model in (ours, theirs))
        np.testing.assert_allclose(mine, other, atol=1e-3 * ours.tree.total)
