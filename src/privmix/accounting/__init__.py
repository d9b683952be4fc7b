"""Accounting: what ran (events), what it costs (accountants), what noise it needs (calibration)."""

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
        right_at_most,
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
    "right_at_most",
    "tradeoff_curve",
]
