"""Who uses the lab while it is broken: a thread, with a client of the service, from the first moment until it is over."""

from __future__ import annotations

import random
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from gpufair.client import Client, ClientError
from tests.chaos.lab import Lab

PATIENCE_S = 120.0


class Somebody(threading.Thread):
    """``failure`` and ``violations`` tell what went wrong; set ``over``, then ``join``."""

    def __init__(self, lab: Lab, seed: int, name: str) -> None:
        super().__init__(name=name)
        self.lab, self.draw = lab, random.Random(seed)
        self.over = threading.Event()
        self.failure: Exception | None = None
        self.violations: list[str] = []
        self.sent_again = 0  # submissions that no answer came to

    def run(self) -> None:
        """Do the work; a failure is kept."""
        try:
            with self.lab.client() as client:
                self.work(client)
        except Exception as err:
            self.failure = err

    @abstractmethod
    def work(self, client: Client) -> None:
        """What this one does, until ``over``."""

    def submit(self, client: Client, name: str, launch: Mapping[str, Any], **spec: Any) -> None:
        """Until it is acknowledged: with the same id again whenever no answer came.

        Raises:
            ClientError: For so long.
        """
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                client.submit(launch, id=name, **spec)
            except ClientError:
                if time.monotonic() > end:
                    raise
                self.sent_again += 1
            else:
                return
