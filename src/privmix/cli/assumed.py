"""What audits tell that holds under an assumption alone, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix.rounding import rounded_down

if TYPE_CHECKING:
    from privmix.attacks.canaries import Apart
    from privmix.audits.score_means import Assumed


def means_in_words(means: Assumed) -> list[str]:
    """A line for each assumption."""
    lines = []
    if means.gaussian_epsilon is not None and means.gaussian_mu is not None:
        mu, epsilon = rounded_down(means.gaussian_mu, 4), rounded_down(means.gaussian_epsilon, 4)
        lines.append(f"by Gaussian scores, as they test: mu at least {mu}, epsilon {epsilon}")
    elif means.doubt:
        lines.append(f"by Gaussian scores: nothing, since {means.doubt}")
    if means.own_noise_epsilon is not None:
        epsilon = rounded_down(means.own_noise_epsilon, 4)
        lines.append(f"by this plan with a noise of its own: epsilon at least {epsilon}")
    return lines


def apart_in_words(apart: Apart | None) -> list[str]:
    """The line of guesses at half of the canaries."""
    if apart is None:
        return []
    mu, epsilon = rounded_down(apart.mu, 4), rounded_down(apart.epsilon, 4)
    guessed = f"{apart.run.correct:,} of {apart.run.guesses:,} guesses"
    return [f"by {guessed} at the curve of Gaussian DP, whatever scores are: mu at least {mu}, epsilon {epsilon}"]
