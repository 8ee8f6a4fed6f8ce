"""Whether whoever wrote to a cluster before had this journal: what a Lease says of that, and how it is judged.

A service takes what its journal knows nothing of for left over, and ends it. With another journal (an empty state folder, a wrong
address of the database, an older backup, a copy for tests) that would be everybody's pods. So the holder notes the last entry of
its journal with each renewal, and only a journal that has this entry may write after it.
"""

from __future__ import annotations

import hmac
import logging
import re
from typing import Final, Protocol

from gpufair.core.errors import GpufairError
from gpufair.service.identity.secrets import Secrets
from gpufair.service.storage.journal import Journal

ANNOTATION: Final = "gpufair.io/journal"
MARK: Final = re.compile(r"([0-9]{1,18})-([0-9a-f]{32})")
_SHOWN: Final = 60
_log = logging.getLogger(__name__)


class OtherJournal(GpufairError):
    """Whoever wrote to the cluster last had a journal that is not this one, or is ahead of it."""

    def __init__(self, lease: str, mark: str, why: str) -> None:
        super().__init__(lease, mark, why)
        self.lease, self.mark, self.why = lease, mark, why

    def __str__(self) -> str:
        return (
            f"nothing is changed in Kubernetes: the Lease {self.lease} is of a service with another journal ({self.why}), and the pods "
            "that this one does not know would be deleted; give this service the state folder and the database of that one, or a "
            f'namespace and Lease of its own; if those pods may end, set take_over = "{self.mark}" in [pool.kubernetes]'
        )


class Marks(Protocol):
    """What a Lease asks of its service's journal."""

    def now(self) -> str:
        """What is to be noted with a renewal."""

    async def strange(self, mark: str) -> str:
        """Why it is not of this journal; "": it is. Raises ``GpufairError`` where that cannot be told now."""


class JournalMarks:
    """Marks of one journal and one state folder's secret. ``take_over``: one that is accepted though it is strange."""

    def __init__(self, journal: Journal, secrets: Secrets, take_over: str = "") -> None:
        self._journal, self._secrets, self._take_over = journal, secrets, take_over

    def now(self) -> str:
        """The number of the journal's last entry, and what proves it."""
        seq, digest = self._journal.end
        return f"{seq}-{self._secrets.journal_mark(seq, digest)}"

    async def strange(self, mark: str) -> str:
        """Why it is not of this journal; "": it is, or it is the one to take over. Raises ``StoreError``."""
        why = await self._judged(mark)
        if why and mark == self._take_over:
            _log.warning("a cluster is taken over from another journal (%s), as take_over says", why)
            return ""
        return why

    async def _judged(self, mark: str) -> str:
        found = MARK.fullmatch(mark)
        if found is None:
            return f"its annotation {ANNOTATION} says {mark[:_SHOWN]!r}, which is no mark of a journal"
        seq, last = int(found[1]), self._journal.end[0]
        if seq > last:
            return f"that one had {seq} entries, this one has {last}"
        digest = await self._journal.digest(seq) if seq else ""
        if digest is None:
            return f"entry {seq} is in an archive already, so they cannot be compared"
        if not hmac.compare_digest(self._secrets.journal_mark(seq, digest), found[2]):
            return f"entry {seq} or the secret of the state folder is not the same"
        return ""
