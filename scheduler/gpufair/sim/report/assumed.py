"""What a simulation took for granted, said in the report: cluster, budgets, costs, options, and what the scenario notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum

from gpufair.core.model import Policy
from gpufair.core.tree import Tree
from gpufair.core.words import span
from gpufair.sim.report.encode import short
from gpufair.sim.report.markup import Cell, Table, folded, items, paragraph, section, table
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Story

_MILLIS = "Millis"  # how fields that are spans are annotated


def assumptions(stories: Sequence[Story]) -> str:
    """The last part of a report."""
    scenario = stories[0].scenario
    notes = (
        items(short(note, 500) for note in scenario.notes)
        if scenario.notes
        else paragraph("The scenario has no notes.")
    )
    return section(
        "assumptions",
        "Assumptions and notes",
        notes,
        table(_costs(scenario)),
        folded("Budgets at the beginning", table(_budgets(scenario))),
        folded("Options of the policies", paragraph("A policy uses what it knows of them."), table(_options(stories))),
    )


def _costs(scenario: Scenario) -> Table:
    costs = scenario.costs
    closed_loop = (
        f"at most {scenario.outstanding} unfinished jobs of a user, {span(scenario.think)} of thought between them"
    )
    rows = [
        ("Launch, from a grant until it is up", f"{span(costs.launch_least)} – {span(costs.launch_most)}, drawn"),
        ("Save, per GiB of state", span(costs.save_per_gib)),
        ("Restore, per GiB of state", span(costs.restore_per_gib)),
        ("Stop, until the GPUs are free", span(costs.stop)),
        ("Periodic checkpoints", span(costs.checkpoint_every) if costs.checkpoint_every else "none"),
        ("Demand", "as recorded (open loop)" if scenario.outstanding is None else closed_loop),
        ("Warm-up left out of the figures", span(scenario.warm_up)),
        ("Simulated", span(scenario.until - scenario.start)),
        ("Seed", str(scenario.seed)),
    ]
    return Table(
        "Costs and conditions", ["what", "assumed"], [[Cell(name), Cell(value)] for name, value in rows], wordy=True
    )


def _budgets(scenario: Scenario) -> Table:
    rows = [
        [
            Cell(node.path or "(all)"),
            Cell(f"{float(node.share):g}", float(node.share)),
            Cell(f"{float(100 * node.entitlement):.3g} %", float(node.entitlement)),
            Cell(f"{float(node.entitlement * scenario.gpus):.4g}", float(node.entitlement * scenario.gpus)),
        ]
        for node in Tree(scenario.allocations).nodes()
    ]
    return Table("Budgets", ["allocation", "share", "entitled to", "of GPUs"], rows)


def _options(stories: Sequence[Story]) -> Table:
    rows = [
        [
            Cell(one.name.replace("_", " ")),
            *(Cell(_said(getattr(story.options, one.name), one.type)) for story in stories),
        ]
        for one in fields(Policy)
    ]
    return Table("Options", ["option", *(short(story.policy) for story in stories)], rows, wordy=True)


def _said(value: object, kind: object) -> str:
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, int) and _MILLIS in str(kind):
        return span(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {factor:g}" for name, factor in sorted(value.items())) or "all 1"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, int | float) else str(value)
