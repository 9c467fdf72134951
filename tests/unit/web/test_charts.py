"""Charts as SVG: what is drawn, what is not, and what stands in it as text."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from kingdom.web.dashboard.charts import TIME_SCALE, Chart, ChartSeries, draw


def chart(*series: tuple[float | None, ...], bars: bool = False) -> Chart:
    made = tuple(ChartSeries(f"s{number}", "ok", values) for number, values in enumerate(series))
    times = tuple(f"t{step}" for step in range(len(series[0])))
    return Chart("about", made, times, times, "{:g}".format, bars)


def paths(drawn: str) -> list[str]:
    return re.findall(r' d="([^"]*)"', drawn)


def labels(drawn: str) -> list[str]:
    return [one.text or "" for one in ET.fromstring(drawn).iter("text")]


def test_a_line_is_broken_where_a_value_is_missing() -> None:
    (path,) = paths(draw(chart((1.0, 2.0, None, 4.0, None))))
    assert path.count("M") == 2
    assert path.endswith("h0.6"), "a value alone is a short line"


def test_a_line_is_not_drawn_along_zero_where_it_would_cover_others() -> None:
    assert paths(draw(chart((0.0, 0.0, 0.0)))) == []
    (path,) = paths(draw(chart((0.0, 0.0, 3.0, 0.0, 0.0))))
    assert (path.count("M"), path.count("L")) == (1, 2), "only up and down again"
    (path,) = paths(draw(replace(chart((0.0, 0.0)), along_zero=True)))
    assert path.count("L") == 1


def test_bars_stand_on_each_other_and_below_the_top() -> None:
    first, second = paths(draw(chart((1.0, 0.0), (3.0, 2.0), bars=True)))
    assert first == "M0.12 1000.0v-250.0h0.76v250.0z"
    assert second == "M0.12 750.0v-750.0h0.76v750.0zM1.12 1000.0v-500.0h0.76v500.0z"


@pytest.mark.parametrize(("highest", "top"), [(0.7, "0.8"), (3.0, "4"), (5.0, "6"), (11.0, "20"), (900.0, "1000")])
def test_the_scale_ends_at_a_round_number(highest: float, top: str) -> None:
    assert top in labels(draw(chart((highest,))))


def test_durations_have_a_scale_of_their_own() -> None:
    assert "1200" in labels(draw(replace(chart((700.0,)), scale=TIME_SCALE)))


def test_there_is_no_scale_without_values_and_few_labels_of_time() -> None:
    assert labels(draw(chart((None,)))) == ["t0"]
    assert len(labels(draw(chart(tuple(range(169)))))) <= 7


def test_names_are_text() -> None:
    hostile = ChartSeries('<script>"&', "ok", (1.0,))
    drawn = draw(Chart('<b>"', (hostile,), ("<i>",), ("<i>",), lambda value: f"<{value}>"))
    assert ET.fromstring(drawn).get("aria-label") == '<b>"'
    titles = [one.text for one in ET.fromstring(drawn).iter("title")]
    assert titles == ['<i>\n<script>"&: <1.0>']
