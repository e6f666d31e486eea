"""Classical reward-matching algorithms on finite MDPs with given features. All solve the dual of the reward game.

algorithm     cost                    response                matching policy
maxent        φ · θ                   soft                    the last response
mmp           φ · θ, with margin      best, loss-augmented    the uniform mixture of responses
learch        exp(φ · θ)              best                    the uniform mixture of responses
abbeel_ng     φ · θ                   best                    a mixture of responses, weighted by projection
"""

from understudy.game import Card
from understudy.tabular.classical.abbeel_ng import CARD as ABBEEL_NG
from understudy.tabular.classical.abbeel_ng import abbeel_ng
from understudy.tabular.classical.learch import CARD as LEARCH
from understudy.tabular.classical.learch import learch
from understudy.tabular.classical.matching import Matched, feature_moments
from understudy.tabular.classical.maxent import CARD as MAXENT
from understudy.tabular.classical.maxent import maxent
from understudy.tabular.classical.mmp import CARD as MMP
from understudy.tabular.classical.mmp import mmp, slack

CARDS: dict[str, Card] = {card.name: card for card in (MAXENT, MMP, LEARCH, ABBEEL_NG)}
"""The cards of the algorithms, by name."""

__all__ = ["CARDS", "Matched", "abbeel_ng", "feature_moments", "learch", "maxent", "mmp", "slack"]
