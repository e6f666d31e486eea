"""Every algorithm, by name. A new one is a file in the folder of its moments and a line here."""

from understudy.algorithms.off_q.advil import AdVIL
from understudy.algorithms.off_q.bc import BC
from understudy.algorithms.off_q.valuedice import ValueDICE
from understudy.algorithms.on_q.aggrevate import AggreVaTe
from understudy.algorithms.on_q.daequil import DAeQuIL
from understudy.algorithms.on_q.dagger import DAgger
from understudy.algorithms.reward.adril import AdRIL
from understudy.algorithms.reward.gail import GAIL
from understudy.algorithms.reward.sqil import SQIL
from understudy.core.errors import unknown
from understudy.game import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {
    algorithm.card.name: algorithm
    for algorithm in (BC, AdVIL, ValueDICE, AdRIL, SQIL, GAIL, DAgger, DAeQuIL, AggreVaTe)
}

bc = BC
advil = AdVIL
valuedice = ValueDICE
adril = AdRIL
sqil = SQIL
gail = GAIL
dagger = DAgger
daequil = DAeQuIL
aggrevate = AggreVaTe


def find(name: str) -> type[Algorithm]:
    """The algorithm called `name`."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS, "`understudy algorithms` lists them.")
    return ALGORITHMS[name]
