"""Pure differential privacy of Laplace queries (DP-InstaHide)."""

import math
from dataclasses import dataclass

from privmix.accounting.base import UnsupportedEvent, flatten, shift_of
from privmix.accounting.events import Adjacency, ClusterSampled, Event, FixedSizeSampled, Laplace, PoissonSampled


@dataclass(frozen=True)
class PureAccountant:
    """Pure epsilon (delta = 0) of sampled Laplace queries: T max(A, B) of DP-InstaHide, Theorem 2.

    A = log(1 - g + g e^(D/scale)) and B = -log(1 - g + g e^(-D/scale)) with sampling rate g. The l1 diameter D is twice
    the record bound under replace-one. The paper sets D = 1; here D follows from the bound of the data.

    *Samples of a fixed size under add/remove.* Let M sum k of N records and M' k of the same and one more, r. A
    k-subset of the N + 1 that holds r is a k-subset of the others in which r replaces a uniformly drawn member s. So M'
    = (1 - g) M + g M_r with g = k/(N + 1), and M_r is M with each sum moved by r - s. As under replace-one, this is
    twice the record bound, not the bound itself. Hence e^(-D/scale) <= M_r / M <= e^(D/scale), and M' / M lies between
    the exponentials of -B and A. Both rise with g, which is at most k/n for n records and a neighbour:
    the price is that of replace-one. With N records alike and r opposite it is attained.

    Formal guarantees:
        * no output is likelier by more than e^epsilon for any neighbour, for any records.
    """

    name: str = "pure"
    is_upper_bound: bool = True
    note: str = ""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        """Pure epsilon; ``delta`` may be anything >= 0 and does not matter."""
        total = 0.0
        for leaf, count in flatten(event).items():
            shift = shift_of(adjacency)
            match leaf:
                case Laplace(multiplier):
                    rate = 1.0
                case PoissonSampled(rate, Laplace(multiplier)):
                    pass
                case FixedSizeSampled(population, size, Laplace(multiplier)):
                    # A record that is added takes another's place.
                    rate, shift = size / population, 2.0
                case ClusterSampled(_, rate, Laplace(multiplier)) if adjacency is Adjacency.ADD_REMOVE:
                    pass
                case ClusterSampled(_, _, Laplace()):
                    reason = "cluster sampling is priced under add_remove only"
                    raise UnsupportedEvent(self.name, leaf, adjacency, reason)
                case _:
                    raise UnsupportedEvent(self.name, leaf, adjacency, "pure DP needs Laplace noise")
            total += count * _sampled(shift / multiplier, rate)
        return total

    def rough(self) -> "PureAccountant":
        return self

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        """0 from the pure epsilon on; below it pure DP has no statement and the answer is 1."""
        return 0.0 if epsilon >= self.epsilon(event, 0.0, adjacency) else 1.0


def published_instahide_epsilon(population: int, mixup_degree: int, noise_scale: float, rows: int) -> float:
    """DP-InstaHide's own figure, T max(A, B) at diameter 1 (Theorem 2): a comparison, not a bound."""
    # The theorem calls an l1 *diameter* of 1 a radius. Records of l1 norm up to 1 lie up to 2 apart, and images with
    # pixels in [0, 1] up to their number of pixels. Labels are left out.
    return rows * _sampled(1 / (mixup_degree * noise_scale), mixup_degree / population)


def _sampled(loss: float, rate: float) -> float:
    """max(A, B) of a query whose record's loss is at most ``loss``, sampled at ``rate``."""
    if rate == 1:
        return loss
    grow = math.log1p(rate * math.expm1(loss)) if loss < 700 else loss + math.log(rate)
    return max(grow, -math.log1p(rate * math.expm1(-loss)))
