"""Accounting: what ran (events), what it costs (accountants), what noise it needs (calibration).

Example:
    >>> from privmix.accounting import Gaussian, PoissonSampled, Repeated, epsilon
    >>> event = Repeated(PoissonSampled(64 / 50_000, Gaussian(0.531)), 50_000)
    >>> cost = epsilon(event, 1e-5)
    >>> round(cost.epsilon, 2), cost.adjacency.value, cost.is_upper_bound
    (9.2, 'add_remove', True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.accounting.api import (
        ACCOUNTANTS,
        Calibration,
        calibrate,
        delta,
        epsilon,
        epsilon_delta_curve,
        get_accountant,
        guess_noise,
        price_picture,
        tradeoff_curve,
    )
    from privmix.accounting.base import Accountant, PrivacyCost, UnsupportedEvent
    from privmix.accounting.events import (
        Adjacency,
        Allocated,
        Bounded,
        ClusterSampled,
        Composed,
        Event,
        FixedSizeSampled,
        Gaussian,
        Laplace,
        NormalWeighted,
        PoissonSampled,
        Repeated,
        event_from_dict,
        event_to_dict,
    )
    from privmix.accounting.gdp import gdp_epsilon, gdp_mu, gdp_tradeoff, published_noise_multiplier
    from privmix.accounting.poisoning import (
        CertifiedLine,
        NeighbourCurve,
        poisoning_cost_bound,
        poisoning_gain_bound,
        poisoning_success_bound,
    )
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Adjacency",
    "Allocated",
    "Bounded",
    "Calibration",
    "CertifiedLine",
    "ClusterSampled",
    "Composed",
    "Event",
    "FixedSizeSampled",
    "Gaussian",
    "Laplace",
    "NeighbourCurve",
    "NormalWeighted",
    "PoissonSampled",
    "PrivacyCost",
    "Repeated",
    "UnsupportedEvent",
    "calibrate",
    "delta",
    "epsilon",
    "epsilon_delta_curve",
    "event_from_dict",
    "event_to_dict",
    "gdp_epsilon",
    "gdp_mu",
    "gdp_tradeoff",
    "get_accountant",
    "guess_noise",
    "poisoning_cost_bound",
    "poisoning_gain_bound",
    "poisoning_success_bound",
    "price_picture",
    "published_noise_multiplier",
    "tradeoff_curve",
]
