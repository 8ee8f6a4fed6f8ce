"""Requests that nobody would write, drawn from the API's own document, at a real service: it answers as the document says, and
never with an internal error."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from gpufair.client import Client, ensure_service
from gpufair.client.endpoint import from_folder

SEED = 20_261_130
EXAMPLES = 3  # of each kind, for each of about 70 operations: half a minute
MOST_S = 30.0
# A stream does not end; a long poll waits.
LEFT_OUT = ("/api/v1/events", "/api/v1/agents/{node}/commands")
# What the schema allows the lab may still refuse ("no such profile"), and some of what it does not say is harmless.
TOO_STRICT: list[Any] = [positive_data_acceptance, negative_data_rejection]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """URL and operator's token of a real embedded service."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(tmp_path / "state"))
    for name in ("GPUFAIR_URL", "GPUFAIR_TOKEN", "GPUFAIR_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    config = tmp_path / "gpufair.toml"
    config.write_text("[service]\nwrong_tokens_per_minute = 0\n")  # it tries wrong ones at each route
    ensure_service(config, wait_s=60)
    found = from_folder(tmp_path / "state")
    assert found is not None
    try:
        yield found.url, found.token
    finally:
        with Client(found) as client:
            pid = client.status().pid
        os.kill(pid, 15)
        end = time.monotonic() + 60
        while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
            time.sleep(0.05)


@pytest.mark.slow
def test_no_request_breaks_the_service_or_the_contract(service: tuple[str, str]) -> None:
    url, token = service
    headers = {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json", headers=headers)
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) > 60
    end, asked = time.monotonic() + MOST_S, set[tuple[str, str]]()
    failures: list[str] = []
    for operation in operations:
        if operation.path in LEFT_OUT:
            continue
        modes = [operation.as_strategy(generation_mode=mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)]

        def ask(case: schemathesis.Case) -> None:
            if time.monotonic() < end:
                asked.add((case.method, case.path))
                try:
                    case.call_and_validate(base_url=url, headers=headers, timeout=60, excluded_checks=TOO_STRICT)
                except AssertionError as err:
                    failures.append(f"{case.method} {case.path}: {err}")

        usual = settings(
            max_examples=2 * EXAMPLES, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )
        seed(SEED)(usual(given(st.one_of(*modes))(ask)))()
    assert failures == [], f"seed {SEED}"
    assert len(asked) > 30, asked
