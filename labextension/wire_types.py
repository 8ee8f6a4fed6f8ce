"""Writes src/answers.ts: the front end's types of what the Jupyter server and the service answer, from their own classes.

    .venv/bin/python labextension/wire_types.py

The file is in git, for a front end is built where no service is installed; a test says when it is out of date.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpufair.client import announcing, budgeting, insight, overview, reasons, types
from gpufair.client import answers as whole
from gpufair.client.json_schema import REF, components
from jupyter_gpufair import answers

TARGET = Path(__file__).parent / "src" / "answers.ts"
_HEAD = """/**
 * What the server extension and the service answer. Made by wire_types.py from their own classes: do not edit.
 */
"""
_PLAIN = {"boolean": "boolean", "integer": "number", "null": "null", "number": "number", "string": "string"}
# What the front end reads; all that is in these comes along.
ROOTS = (
    *(answers.Cells, answers.Log, answers.MySessions, answers.Outputs, answers.Session, answers.Traces, answers.WhatIf),
    *(types.Budgets, reasons.Explanation, whole.Nodes, whole.Profiles, whole.QueuedWorkloads, whole.Workloads),
    *(insight.Coaching, insight.Preview, insight.Pyramid, insight.BudgetsOverTime, insight.Deliveries, insight.GpuHistory, insight.Tour),
    *(budgeting.BudgetHistory, budgeting.BudgetRequests, overview.OpenAllocations, announcing.Announcements),
)


def written() -> str:
    """All of them as TypeScript."""
    found = components(ROOTS)
    return _HEAD + "".join(f"\n{_interface(name, found[name])}" for name in sorted(found) if not name.endswith("Part"))


def _interface(name: str, schema: dict[str, Any]) -> str:
    required = set(schema["required"])
    lines = [
        f"  {field}{'' if field in required else '?'}: {_type(inner)};" for field, inner in schema["properties"].items()
    ]
    return f"/** {schema['description']} */\nexport interface {name} {{\n" + "\n".join(lines) + "\n}\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(REF)
    if "enum" in schema:
        return " | ".join("null" if word is None else f"'{word}'" for word in schema["enum"])
    if "anyOf" in schema:
        # An object that may lack fields: whoever asks for some of them picks those.
        return " | ".join(_type(one) for one in schema["anyOf"] if not str(one.get("$ref", "")).endswith("Part"))
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(_type(one) for one in schema['prefixItems'])}]"
        inner = _type(schema["items"])
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if schema.get("type") == "object":
        inner = schema["additionalProperties"]
        return f"Record<string, {'unknown' if inner is True else _type(inner)}>"
    return _PLAIN[schema["type"]] if "type" in schema else "unknown"


if __name__ == "__main__":
    TARGET.write_text(written(), encoding="utf-8")
