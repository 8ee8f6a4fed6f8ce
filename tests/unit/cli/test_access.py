"""Commands about who may do what: links to the pages, tokens, and the audit."""

from __future__ import annotations

import time
import webbrowser
from typing import Any

import pytest

from tests.unit.cli.conftest import NOW, Gpufair
from tests.unit.client.fake_service import FakeService, Reply

TOKEN: dict[str, Any] = {
    "id": "5f0c9a1e",
    "user": "ada",
    "scope": "read",
    "label": "grafana",
    "page": False,
    "made_by": "ada",
    "made_s": NOW - 60,
    "expires_s": NOW + 3600,
    "revoked_s": None,
}


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


def test_a_link_to_the_pages(gpufair: Gpufair, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Printed, whole, for a browser anywhere; or opened, and printed where there is no browser."""
    fake.routes["POST /api/v1/dashboard/links"] = Reply(body={"path": "/dashboard/#code=x-_1", "lasts_s": 60.0})
    url = gpufair("dashboard").out.strip()
    assert url.startswith("http://127.0.0.1:")
    assert url.endswith("/dashboard/#code=x-_1")
    assert gpufair("dashboard", "--json").json == {"url": url, "lasts_s": 60.0}
    opened: list[str] = []

    def open_it(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", open_it)
    assert (gpufair("dashboard", "--open").out, opened) == ("", [url])
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert gpufair("dashboard", "--open").out.strip() == url


def test_tokens(gpufair: Gpufair, fake: FakeService) -> None:
    """A new one is alone on standard output; lists leave out what is over."""
    over = TOKEN | {"id": "aa", "revoked_s": NOW - 1}
    ended = TOKEN | {"id": "bb", "expires_s": NOW}
    fake.routes |= {
        "GET /api/v1/tokens": Reply(body={"tokens": [TOKEN, over, ended]}),
        "POST /api/v1/tokens": Reply(201, TOKEN | {"token": "gpf_secret"}),
        "DELETE /api/v1/tokens/5f0c9a1e": Reply(body=over),
    }
    listed = gpufair("tokens", "list").out
    assert "grafana" in listed
    assert (" aa " in listed, "\naa" in listed) == (False, False)
    assert [one["id"] for one in gpufair("tokens", "list", "--all", "--json").json["tokens"]] == ["5f0c9a1e", "aa", "bb"]
    assert "revoked" in gpufair("tokens", "list", "--all").out
    made = gpufair("tokens", "create", "--label", "grafana", "--expires", "1h")
    assert made.out == "gpf_secret\n"
    assert made.err.startswith("5f0c9a1e: read, for ada, until ")
    assert fake.calls("POST /api/v1/tokens")[0].json == {"scope": "read", "label": "grafana", "lasts_s": 3600.0}
    assert gpufair("tokens", "create", "--json").json["token"] == "gpf_secret"
    assert gpufair("tokens", "create", "--expires", "soon").code == 2
    assert gpufair("tokens", "revoke", "5f0c9a1e").out == "1 token revoked\n"


def test_the_audit(gpufair: Gpufair, fake: FakeService) -> None:
    """Who, with which token, what, and which entries of the journal came of it."""
    line = {"number": 2, "at_s": NOW, "user": "ops", "role": "operator", "token": "5f0c9a1e", "request": "POST /api/v1/nodes/n1/drain"}
    changes = [line | {"entries": [7, 9]}, line | {"number": 1, "token": "", "entries": None}]
    fake.routes["GET /api/v1/audit"] = Reply(body={"changes": changes})
    out = gpufair("audit", "--user", "ops", "--limit", "2").out
    assert "POST /api/v1/nodes/n1/drain" in out
    assert "7–9" in out
    assert fake.calls("GET /api/v1/audit")[0].query == {"limit": ["2"], "before": ["0"], "user": ["ops"]}
    assert gpufair("audit", "--json").json == {"changes": changes}
