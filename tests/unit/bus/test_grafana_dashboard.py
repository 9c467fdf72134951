"""The dashboard shows metrics that exist, with labels that they have, and leaves none out."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

from prometheus_client import Metric

from kingdom.bus.metrics import Metrics
from kingdom.court.bootstrap import open_services
from kingdom.court.home import Home
from kingdom.court.metrics import CourtMetrics

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana" / "kingdom.json"
ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def queries() -> list[tuple[str, str]]:
    """Every query, with the legend of what it gives."""
    return [(target["expr"], target["legendFormat"]) for panel in panels() for target in panel.get("targets", [])]


async def families(root: Path) -> dict[str, Metric]:
    """Everything that the court and the bus tell, by the names under which Prometheus stores it."""
    home = Home(root)
    home.config.mkdir()
    (home.config / "system.yaml").write_text("")
    async with open_services(home) as services:
        court = CourtMetrics(services)
        await court.sample()
        told = [*court.collect(), *Metrics().collect()]
    return {family.name + ending: family for family in told for ending in ENDINGS[family.type]}


async def test_every_metric_on_it_is_collected_and_every_one_collected_is_on_it(tmp_path: Path) -> None:
    known = await families(tmp_path)
    used = {name for expr, _ in queries() for name in re.findall(r"kingdom_[a-z0-9_]+", expr)}
    assert used - known.keys() == set(), "used, but never collected"
    shown = {known[name].name for name in used}
    assert {family.name for family in known.values()} - shown == set(), "collected, but not to be seen"


async def test_what_it_groups_and_names_by_are_labels_of_the_metric(tmp_path: Path) -> None:
    known = await families(tmp_path)
    for expr, legend in queries():
        wanted = set(re.findall(r"\{\{(\w+)\}\}", legend))
        for group in re.findall(r"by \(([^)]*)\)", expr):
            grouped = {label.strip() for label in group.split(",")}
            assert wanted <= grouped, f"{legend} is not kept by {expr}"
            for name in re.findall(r"kingdom_[a-z0-9_]+", expr):
                assert grouped - {"le"} <= set(known[name]._labelnames), expr


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found)
    places = [panel["gridPos"] for panel in found]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


def test_it_asks_for_the_data_source_and_names_none() -> None:
    document = json.loads(DASHBOARD.read_text())
    assert [variable["type"] for variable in document["templating"]["list"]] == ["datasource"]
    named = {json.dumps(panel["datasource"]) for panel in panels() if "datasource" in panel}
    assert named == {'{"type": "prometheus", "uid": "${datasource}"}'}
