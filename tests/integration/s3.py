"""A real S3 server over HTTP (moto's, which lives in an environment of its own), with the bucket ``lab``."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVER = Path(os.environ.get("GPUFAIR_S3_SERVER", ".venv-s3/bin/moto_server"))


@contextmanager
def s3_server(secret: str = "test") -> Iterator[str]:
    """Its address. While it runs the environment says where it is, as an operator would; ``secret``: the key to it."""
    if not SERVER.exists():
        if os.environ.get("GPUFAIR_REQUIRE_ALL") == "1":
            pytest.fail(f"there is no {SERVER}; `make s3-server` sets it up")
        pytest.skip(f"there is no {SERVER}; `make s3-server` sets it up")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [str(SERVER), "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = dict(os.environ)
    try:
        _until_served(f"{url}/moto-api/", server)
        with urllib.request.urlopen(urllib.request.Request(f"{url}/lab", method="PUT"), timeout=30) as made:
            assert made.status == 200
        os.environ |= {
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
        }
        yield url
    finally:
        server.kill()
        server.wait()
        os.environ.clear()
        os.environ.update(before)


def _until_served(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except (urllib.error.URLError, ConnectionError):
            assert server.poll() is None, "the server has ended"
            assert time.monotonic() < until
            time.sleep(0.1)
        else:
            return
