"""How the agent in a pod ends: its exit status is all that Kubernetes keeps of it."""

from __future__ import annotations

from enum import IntEnum


class PodExit(IntEnum):
    """Exit status of ``python -m gpufair.node.pod``. Those of Python itself (1, 2) and of signals (128 and more) are left."""

    IN_ORDER = 0  # its workload has ended well, or was saved and released; the service has all that is to be said
    BAD_CONFIG = 2  # the config file cannot be used
    FAILED = 10  # its workload has failed, or its time was over; the service knows
    NOT_STARTED = 11  # its workload could not be started; the service knows why
    NEVER_REACHED = 12  # no service has answered within the linger time
    REFUSED = 13  # who answers is another service, or does not take this pod's token
    SERVICE_LOST = 14  # no service for the linger time: all is saved and ended, and the service does not know yet
    OUT_OF_TIME = 15  # told to end, and not done within the grace; what was not acknowledged is left behind


EXPLAINED: dict[int, str] = {
    PodExit.IN_ORDER: "its workload has ended, or was saved and released",
    1: "its agent has met an internal error; see the pod's log",
    PodExit.BAD_CONFIG: "its config cannot be used; the image and the service have to be of the same release",
    PodExit.FAILED: "its workload has failed",
    PodExit.NOT_STARTED: "its workload could not be started",
    PodExit.NEVER_REACHED: "it has not reached the service; see whether pods may connect to the address that the "
    "configuration gives for it (DNS, network policies, certificate)",
    PodExit.REFUSED: "the service did not take its token, or is another one; see the address that the configuration "
    "gives for it, and whether the service's secret has changed",
    PodExit.SERVICE_LOST: "the service was not reached for too long; the workload was saved and ended",
    PodExit.OUT_OF_TIME: "it was told to end, and its grace was over before all was saved and reported",
}
"""What each means, for who is told that a pod has ended with it."""
