"""The dashboard's own rules: its words, its colours, its choices, and reading once for many."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC

import pytest

from kingdom.web.dashboard import theme
from kingdom.web.dashboard.formats import format_age, format_clock, format_count, format_span, format_usd
from kingdom.web.dashboard.refresh import SharedReads
from kingdom.web.dashboard.shell import preference_link
from kingdom.web.dashboard.visit import preferred_settings
from kingdom.web.dashboard.words import LOCALES, TEXTS, translations
from kingdom.web.security.headers import is_local_path

_TEXT_ON = ("page", "surface", "raised")


def _luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["text", "muted", "accent", "ok", "busy", "warn", "bad", "idle"])
def test_every_text_colour_can_be_read_on_every_surface(colours: dict[str, str], name: str) -> None:
    for surface in _TEXT_ON:
        assert _contrast(colours[name], colours[surface]) >= 4.5, surface
    if f"{name}-soft" in colours:
        assert _contrast(colours[name], colours[f"{name}-soft"]) >= 4.5


@pytest.mark.parametrize("colours", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_what_stands_on_the_accent_can_be_read(colours: dict[str, str]) -> None:
    assert _contrast(colours["on-accent"], colours["accent"]) >= 4.5


@pytest.mark.parametrize("index", [0, 1], ids=["light", "dark"])
def test_lines_of_charts_are_seen(index: int) -> None:
    surface = (theme.LIGHT, theme.DARK)[index]["surface"]
    for pair in theme.CHART.values():
        assert _contrast(pair[index], surface) >= 3


def test_both_themes_have_the_same_colours() -> None:
    assert theme.LIGHT.keys() == theme.DARK.keys()
    assert "--k-chart-first" in theme.variables()


def test_a_status_nobody_knows_has_a_colour_too() -> None:
    assert theme.tone_of("needs_human") == "warn"
    assert theme.tone_of("FAILED") == "bad"
    assert theme.tone_of("never heard of") == "idle"


def test_every_language_has_the_same_words_with_the_same_fields() -> None:
    first = TEXTS[LOCALES[0]]
    for locale in LOCALES[1:]:
        assert TEXTS[locale].keys() == first.keys()
        for key, text in TEXTS[locale].items():
            assert _fields(text) == _fields(first[key]), key
            assert text.strip(), key


def _fields(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def test_a_word_of_the_court_without_a_text_is_shown_as_it_is() -> None:
    words = translations("ko")
    assert words.of("status", "failed") == "실패"
    assert words.of("status", "unheard") == "unheard"
    assert translations("en")("court.deadline", at="noon") == "until noon"


@pytest.mark.parametrize(
    ("cookies", "languages", "default", "expected"),
    [
        ({}, "", "en", ("en", "auto")),
        ({}, "", "ko", ("ko", "auto")),
        ({}, "", "xx", ("en", "auto")),
        ({}, "ko-KR,ko;q=0.9,en;q=0.8", "en", ("ko", "auto")),
        ({}, "fr,en;q=0.5,ko;q=0.2", "ko", ("en", "auto")),
        ({}, "fr;q=what,ko;q=0", "en", ("en", "auto")),
        ({"kingdom_locale": "en", "kingdom_theme": "dark"}, "ko", "ko", ("en", "dark")),
        ({"kingdom_locale": "<b>", "kingdom_theme": "<b>"}, "ko", "en", ("ko", "auto")),
    ],
)
def test_language_and_theme_are_what_was_chosen_else_what_the_browser_wants(
    cookies: dict[str, str], languages: str, default: str, expected: tuple[str, str]
) -> None:
    assert preferred_settings(cookies, languages, default) == expected


def test_a_choice_leads_back_to_a_page_of_ours_only() -> None:
    assert preference_link("/tasks?q=a b", theme="dark") == "/preferences?theme=dark&back=%2Ftasks%3Fq%3Da+b"
    assert is_local_path("/tasks?q=1")
    for elsewhere in ("//evil.example", "/\\evil.example", "https://evil.example", "tasks", "", "/a\r\nSet-Cookie: x"):
        assert not is_local_path(elsewhere), elsewhere


def test_times_and_amounts_are_told_as_people_read_them() -> None:
    words = translations("en")
    spans = [(None, "–"), (7, "5 s"), (61, "1 min"), (3_700, "1 h 1 min"), (90_000, "1 d 1 h"), (-3, "0 s")]
    assert [format_span(seconds, words) for seconds, _ in spans] == [shown for _, shown in spans]
    assert [format_age(seconds, words) for seconds in (None, 4, 125)] == ["never", "just now", "2 min ago"]
    assert format_clock("2026-02-07T10:00:05Z", UTC, now=1770458400.0) == "10:00:05"
    assert format_clock("2026-02-06T10:00:05Z", UTC, now=1770458400.0) == "2026-02-06 10:00"
    assert format_clock("<b>", UTC) == "<b>"
    amounts = ["–", "$0.00", "$0.0042", "$0.12", "$1,234.50"]
    assert [format_usd(amount) for amount in (None, 0, 0.0042, 0.12, 1234.5)] == amounts
    assert [format_count(number) for number in (7, 9_999, 12_345, 1_234_567)] == ["7", "9,999", "12.3k", "1.2M"]


async def test_what_many_ask_for_at_once_is_read_once() -> None:
    now, reads = [0.0], 0

    async def read() -> int:
        nonlocal reads
        await asyncio.sleep(0)
        reads += 1
        return reads

    shared = SharedReads(lambda: now[0])
    assert await asyncio.gather(*(shared.read("one", read) for _ in range(20))) == [1] * 20
    assert await shared.read("other", read) == 2
    now[0] += 0.1
    assert await shared.read("one", read) == 1
    now[0] += 1
    assert await shared.read("one", read) == 3


async def test_one_who_goes_away_takes_the_answer_from_nobody() -> None:
    go_on = asyncio.Event()

    async def read() -> str:
        await go_on.wait()
        return "there"

    shared = SharedReads()
    impatient, patient = (asyncio.ensure_future(shared.read("one", read)) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    go_on.set()
    assert await patient == "there"


async def test_an_error_is_told_to_all_who_asked_and_not_remembered() -> None:
    now, wrong = [0.0], [True]

    async def read() -> str:
        if wrong[0]:
            raise ValueError("not now")
        return "there"

    shared = SharedReads(lambda: now[0])
    for _ in range(2):
        with pytest.raises(ValueError, match="not now"):
            await shared.read("one", read)
    wrong[0], now[0] = False, 1.0
    assert await shared.read("one", read) == "there"


@pytest.mark.parametrize("locale", LOCALES)
def test_no_text_advises_a_command_where_a_page_does_it(locale: str) -> None:
    """What is left starts the court or the engine, or shows the link that logs in: no page can."""
    named = {key: re.findall(r"kingdom [a-z]+(?: [a-z]+)?", text) for key, text in TEXTS[locale].items()}
    left = {"court.attention.down", "people.none.hint", "workflow.engine.none"}
    assert {key for key, found in named.items() if found} == left
