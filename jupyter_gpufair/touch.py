"""Touching a parked session resumes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gpufair.client import Refused
from gpufair.core.errors import GpufairError
from jupyter_gpufair.io_thread import on_io
from jupyter_gpufair.session import Session

AGAIN_S = 2.0


async def touch(session: Session, wanted: Callable[[], bool], log: logging.Logger) -> Refused | None:
    """Ask for the session until it is parked no more, or not wanted. Returns: Why it stays parked, if the service says no."""
    while wanted() and session.state == "parked":
        try:
            await on_io(session.resume())
        except Refused as err:
            return err if session.state == "parked" else None
        except GpufairError as err:
            log.warning("session %s could not be resumed yet: %s", session.kernel_id, err)
        await asyncio.sleep(AGAIN_S)
    return None
