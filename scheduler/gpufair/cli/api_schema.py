"""`gpufair api-schema`: the contract of the HTTP API, without a service."""

from __future__ import annotations

import json
from importlib import metadata

import typer


def api_schema() -> None:
    """Print the OpenAPI document of this version's HTTP API, as a service answers it at /api/v1/openapi.json."""
    from gpufair.service.api import routed  # noqa: PLC0415  # the whole service: half a second that others need not pay

    typer.echo(json.dumps(routed(metadata.version("jupyter-gpufair")).openapi(), indent=2))
