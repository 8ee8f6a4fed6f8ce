"""REST under ``/gpufair/lab/``: other shares for the budgets, tried on the live state and put into force."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpufair.debate import as_user
from jupyter_gpufair.handlers import GpufairHandler
from jupyter_gpufair.sessions import sessions

MOST_SHARES = 500
MOST_HOURS = 72.0
PLAY_S = 120.0  # a page waits for it
_TERMS = ("why", "from_s", "until_s", "preview")
_LONGEST = 512
_PATH = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)
_CONTROL = re.compile(r"\x1b\[[0-9;]*m")


class _SharesHandler(GpufairHandler):
    """Base: reads the shares of a body."""

    def _body(self) -> dict[str, Any]:
        body = self.get_json_body()
        if not isinstance(body, dict):
            raise web.HTTPError(400, 'give an object like {"shares": {"language": 60}}')
        return body

    @staticmethod
    def _shares(asked: dict[str, Any]) -> dict[str, float]:
        shares = asked.get("shares")
        if not isinstance(shares, dict) or not 0 < len(shares) <= MOST_SHARES:
            raise web.HTTPError(400, f"shares has to be an object of 1 to {MOST_SHARES} paths with their shares")
        for path, share in shares.items():
            if len(path) > _LONGEST or not _PATH.fullmatch(path):
                raise web.HTTPError(400, f"{path[:80]!r} is no path of an allocation")
            if isinstance(share, bool) or not isinstance(share, (int, float)) or not (math.isfinite(share) and share >= 0):
                raise web.HTTPError(400, f"the share of {path} is {str(share)[:80]!r}; give a number, 0 or more")
        return shares


class TryHandler(_SharesHandler):
    """``POST lab/whatif`` with ``{"shares": {path: share}, "hours"?}``: who would gain and who would lose."""

    _playing = asyncio.Lock()

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """What ``gpufair whatif --json`` says, played in a process of its own, one at a time. Changes nothing."""
        asked = self._body()
        hours = asked.get("hours", 24.0)
        if isinstance(hours, bool) or not isinstance(hours, (int, float)) or not 0 < hours <= MOST_HOURS:
            raise web.HTTPError(400, f"hours is {str(hours)[:80]!r}; give more than 0 and at most {MOST_HOURS:.0f}")
        words = [word for path, share in self._shares(asked).items() for word in ("--budget", f"{path}={share}")]
        command = [sys.executable, "-m", "gpufair.cli", "whatif", *words, "--hours", str(hours), "--json"]
        async with self._playing:
            self._json(await _play(command))


class DivideHandler(_SharesHandler):
    """``PUT lab/divide``: other shares, at once or at a time. ``{"shares", "seen", "why"?, "from_s"?, "until_s"?, "preview"?}``."""

    @web.authenticated
    @authorized
    async def put(self) -> None:
        """The decision, as the service keeps it. 409 where shares are not what was ``seen``: somebody changed them meanwhile."""
        asked = self._body()
        if not isinstance(asked.get("seen"), dict):
            raise web.HTTPError(400, "seen has to be an object of all paths with their shares, as they were")
        given = {name: asked[name] for name in _TERMS if asked.get(name) is not None}
        body = given | {"shares": self._shares(asked), "seen": asked["seen"]}
        self._json(await self._ask(sessions().link.client.send(as_user("changes", body))))


async def _play(command: list[str]) -> Any:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        said, problem = await asyncio.wait_for(process.communicate(), PLAY_S)
    except TimeoutError:
        raise web.HTTPError(504, f"playing took longer than {PLAY_S:.0f} s; try fewer hours") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        text = _CONTROL.sub("", problem.decode(errors="replace")).strip()
        raise web.HTTPError(422, " ".join(text.split())[-500:] or "it failed without a word", reason="Not Playable")
    return json.loads(said)


HANDLERS: list[tuple[str, type[GpufairHandler]]] = [
    (r"/gpufair/lab/whatif", TryHandler),
    (r"/gpufair/lab/divide", DivideHandler),
]
