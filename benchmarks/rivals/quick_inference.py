"""Mirror descent of dpmm's graphical models with fewer Python objects: the same steps, many times as fast.

AIM estimates its model anew in each round, by a thousand steps that each pass messages over a junction tree. The
package makes several objects a message, which is nearly all that its time goes to where tables are small. Here the tree
is laid out once and the steps are on arrays. ``use`` puts it in the package's place, and compares both on the first
model: the results agree to 1e-5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = list[np.ndarray]
_CHECKED_STEPS = 5


class Tree:
    """A model's cliques and messages, and the measurements of each clique, those of the same columns as one."""

    def __init__(self, model: Any, groups: dict[Any, list[Any]]) -> None:
        self.cliques, self.log_total = list(model.cliques), np.log(model.total)
        at = {clique: place for place, clique in enumerate(self.cliques)}
        self.messages = [(at[i], at[j], *_laid(i, j, set(i) & set(j), model.domain)) for i, j in model.message_order]
        self.measured = [_merged(clique, groups[clique], model.domain) for clique in self.cliques]

    def marginals(self, potentials: Arrays) -> Arrays:
        beliefs = [one.copy() for one in potentials]
        sent: dict[tuple[int, int], np.ndarray] = {}
        for i, j, summed, order, shape in self.messages:
            own = beliefs[i] - sent[j, i] if (j, i) in sent else beliefs[i]
            most = own.max(axis=summed, keepdims=True)
            found = np.log(np.exp(own - most).sum(axis=summed)) + most.reshape([own.shape[a] for a in order[0]])
            sent[i, j] = found.transpose(order[1]).reshape(shape)
            beliefs[j] += sent[i, j]
        first = beliefs[0]
        most = first.max()
        shift = self.log_total - (np.log(np.exp(first - most).sum()) + most)
        return [np.exp(one + shift) for one in beliefs]

    def loss(self, marginals: Arrays) -> tuple[float, Arrays]:
        """Up to a constant, and its gradient."""
        loss, gradients = 0.0, []
        for own, measured in zip(marginals, self.measured, strict=True):
            gradient = np.zeros_like(own)
            for summed, shape, weight, mean in measured:
                apart = own.sum(axis=summed).reshape(shape) - mean
                loss += 0.5 * weight * float(np.vdot(apart, apart))
                gradient += weight * apart
            gradients.append(gradient)
        return loss, gradients


def _laid(i: Any, j: Any, shared: set[Any], domain: Any) -> tuple[Any, ...]:
    """Axes of ``i`` that a message to ``j`` sums over, the order of what is left, and its shape in ``j``."""
    left = [name for name in i if name in shared]
    wanted = [name for name in j if name in shared]
    order = ([i.index(name) for name in left], [left.index(name) for name in wanted])
    shape = tuple(domain.size((name,)) if name in shared else 1 for name in j)
    return tuple(axis for axis, name in enumerate(i) if name not in shared), order, shape


def _merged(clique: Any, measurements: list[Any], domain: Any) -> list[Any]:
    by_columns: dict[Any, list[Any]] = {}
    for _, values, noise, columns in measurements:
        sizes = [domain.size((name,)) for name in columns]
        order = np.argsort([clique.index(name) for name in columns])
        table = np.asarray(values, float).reshape(sizes).transpose(order)
        by_columns.setdefault(frozenset(columns), []).append((table, 1 / noise**2))
    found = []
    for columns, tables in by_columns.items():
        weight = sum(one for _, one in tables)
        shape = tuple(domain.size((name,)) if name in columns else 1 for name in clique)
        summed = tuple(axis for axis, name in enumerate(clique) if name not in columns)
        mean = sum(one * table for table, one in tables) / weight
        found.append((summed, shape, weight, np.asarray(mean).reshape(shape)))
    return found


def descend(tree: Tree, potentials: Arrays, steps: int, total: float) -> tuple[Arrays, Arrays]:
    """``FactoredInference.mirror_descent`` with its line search: potentials and marginals at the end."""
    marginals = tree.marginals(potentials)
    loss, gradients = tree.loss(marginals)
    step = 1.0 / total**2
    for _ in range(steps):
        old, before, was, slope = potentials, marginals, loss, gradients
        step *= 2
        for _ in range(25):
            potentials = [one - step * down for one, down in zip(old, slope, strict=True)]
            marginals = tree.marginals(potentials)
            loss, gradients = tree.loss(marginals)
            pairs = zip(slope, before, marginals, strict=True)
            if was - loss >= 0.5 * step * sum(float(np.vdot(down, one - other)) for down, one, other in pairs):
                break
            step *= 0.5
    return potentials, marginals


def use(inference: Any, vector: Any) -> None:
    """Put it in the place of ``inference.mirror_descent``; ``vector`` is the package's type of marginals."""
    slow, checked = inference.mirror_descent, []

    def mirror_descent(self: Any, measurements: Any, total: Any = None, **_: Any) -> None:
        if not checked:
            checked.append(True)
            _check(self, slow, measurements, total)
        self._setup(measurements, total)
        model = self.model
        tree = Tree(model, self.groups)
        start = [np.asarray(model.potentials[clique].values, float) for clique in tree.cliques]
        found = descend(tree, start, self.iters, model.total)
        for name, arrays in zip(("potentials", "marginals"), found, strict=True):
            pairs = zip(tree.cliques, arrays, strict=True)
            factors = {clique: self.Factor(model.domain.project(clique), values) for clique, values in pairs}
            setattr(model, name, vector(factors))

    inference.mirror_descent = mirror_descent


def _check(engine: Any, slow: Any, measurements: Any, total: Any) -> None:
    steps, engine.iters = engine.iters, _CHECKED_STEPS
    slow(engine, measurements, total)
    wanted = {clique: engine.model.marginals[clique].values for clique in engine.model.cliques}
    del engine.model
    engine._setup(measurements, total)
    tree = Tree(engine.model, engine.groups)
    start = [np.zeros(wanted[clique].shape) for clique in tree.cliques]
    _, found = descend(tree, start, _CHECKED_STEPS, engine.model.total)
    for clique, one in zip(tree.cliques, found, strict=True):
        np.testing.assert_allclose(one, wanted[clique], rtol=1e-5, atol=1e-5 * engine.model.total)
    del engine.model
    engine.iters = steps
