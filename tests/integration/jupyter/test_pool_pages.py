"""The dashboard of this machine's CPU pool, as a browser sees it through a real Jupyter server."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import websocket

from gpufair import cpu
from gpufair.cpu import resident
from tests.integration.jupyter.fake_service import FakeService
from tests.integration.jupyter.server import Server

pytest.importorskip("bokeh")

WAIT_S = 60.0
PAGES = "/gpufair/cpu-pool/dashboard/"


def page(server: Server, path: str, token: str | None) -> tuple[int, str, str]:
    """(status, where it was found, text)."""
    headers = {} if token is None else {"Authorization": f"token {token}"}
    request = urllib.request.Request(f"{server.url}{PAGES}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.url, answer.read().decode()
    except urllib.error.HTTPError as err:
        return err.code, str(err.url), err.read().decode()


def test_the_dashboard_is_seen_through_jupyter_and_by_nobody_else(
    own_service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages, their parts and their websocket; none of it without the server's token, nor at a port."""
    folder = own_service.folder
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(folder))
    monkeypatch.delenv("GPUFAIR_CPU_POOL", raising=False)
    with Server(tmp_path / "home", folder) as server:
        status, _, text = page(server, "status", server.token)
        assert (status, "gpufair cpu start --dashboard" in text) == (404, True)
        living, _ = resident.start(folder, workers=1, pages=True, wait_s=WAIT_S)
        try:
            pages = Path(living.dashboard)
            assert [path.stat().st_mode & 0o777 for path in (pages, pages.parent)] == [0o600, 0o700]

            listening = [each for each in psutil.Process(living.pid).net_connections() if each.status == "LISTEN"]
            assert listening
            for each in listening:  # those of Dask's own protocol: no page without its key
                with pytest.raises(OSError, match=r"."):
                    urllib.request.urlopen(f"http://127.0.0.1:{each.laddr.port}/status", timeout=WAIT_S)

            status, found, text = page(server, "", server.token)
            assert (status, found) == (200, f"{server.url}{PAGES}status")
            script = re.findall(r'src="(static/js/bokeh\.min\.js[^"]*)"', text)[0]
            assert page(server, script, server.token)[0] == 200
            assert page(server, "no/such/page", server.token)[0] == 404
            _, elsewhere, text_elsewhere = page(server, "status", None)
            assert "/login" in elsewhere
            assert "bokeh" not in text_elsewhere.lower()

            # What the page does: Bokeh's protocol, whose server speaks first.
            session = re.findall(r'"token":"([^"]+)"', text)[0]
            address = f"ws{server.url.removeprefix('http')}{PAGES}status/ws"
            header = [f"Authorization: token {server.token}"]
            live = websocket.create_connection(address, WAIT_S, header=header, subprotocols=["bokeh", session])
            with closing(live):
                said = [live.recv() for _ in range(3)]
                assert json.loads(said[0])["msgtype"] == "ACK"
                assert live.getsubprotocol() == "bokeh"
                live.send(json.dumps({"msgid": "1", "msgtype": "PULL-DOC-REQ"}))
                for part in ("{}", "{}"):
                    live.send(part)
                parts = (live.recv() for _ in range(100))  # of the news that it tells meanwhile, too
                assert any('"PULL-DOC-REPLY"' in str(part)[:200] for part in parts)
            with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
                websocket.create_connection(address, WAIT_S, subprotocols=["bokeh", session])

            assert PAGES in repr(cpu.connect())
            assert f'href="{PAGES}"' in cpu.connect()._repr_html_()
        finally:
            cpu.close()
            resident.stop(folder)
        assert not pages.parent.exists()
        assert page(server, "status", server.token)[0] == 404
