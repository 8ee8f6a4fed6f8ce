"""What if: the live state played forward twice, as it is and changed, with the same people submitting the same."""

from gpufair.core.tree import with_shares
from gpufair.sim.whatif.arrivals import NONE, again, underway
from gpufair.sim.whatif.compared import Account, Change, Comparison, Play, whatif
from gpufair.sim.whatif.past import Past, Seen, look_back

__all__ = [
    "NONE",
    "Account",
    "Change",
    "Comparison",
    "Past",
    "Play",
    "Seen",
    "again",
    "look_back",
    "underway",
    "whatif",
    "with_shares",
]
