"""Stands in for `python -m gpufair.cli`: takes its arguments, does what ``$STAND_IN`` says, notes each start."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

LIFE_S = 60.0  # nothing outlives a failed test for long


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()


def main() -> None:
    folder = Path(sys.argv[sys.argv.index("--state-dir") + 1])
    with (folder / "starts").open("a") as file:
        file.write(
            json.dumps({"argv": sys.argv[1:], "pid": os.getpid(), "sid": os.getsid(0), "env": dict(os.environ)}) + "\n"
        )
    signal.alarm(int(LIFE_S))
    behaviour = os.environ.get("STAND_IN", "serve")
    if behaviour == "fail":
        print("first line\nGpufairError: port 80 is taken; choose another", file=sys.stderr)
        sys.exit(7)
    if behaviour == "hang":
        print("still loading", flush=True)
        time.sleep(LIFE_S)
    time.sleep(0.3)  # a start takes a while: that is when a second one could slip in
    server = HTTPServer(("127.0.0.1", 0), Healthy)
    path = folder / "service.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(
        json.dumps(
            {
                "url": f"http://127.0.0.1:{server.server_address[1]}",
                "token": "t",
                "pid": os.getpid(),
                "started_s": time.time(),
            }
        )
    )
    fresh.chmod(0o600)
    fresh.replace(path)
    server.serve_forever()


main()
