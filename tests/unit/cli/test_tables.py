"""Tables as text: folded and coloured on a terminal, plain elsewhere."""

from __future__ import annotations

import pytest

from kingdom.cli.output import Styled, Table, show, step, wrap

ROWS = [("orders", 12, "the payment was refused by the bank"), ("mails", 3, "")]


def test_columns_have_the_width_of_their_longest_cell_and_numbers_stand_to_the_right() -> None:
    table = Table(("stream", "dead", "why"), ROWS, right=("dead",))
    assert table.render().splitlines() == [
        "stream  dead  why",
        "orders    12  the payment was refused by the bank",
        "mails      3",
    ]


def test_a_table_is_folded_to_its_place_at_spaces() -> None:
    lines = Table(("stream", "dead", "why"), ROWS, right=("dead",)).render(30).splitlines()
    assert lines == [
        "stream  dead  why",
        "orders    12  the payment was",
        "              refused by the",
        "              bank",
        "mails      3",
    ]


def test_a_name_without_spaces_is_folded_behind_a_joint() -> None:
    table = Table(("workflow",), [("write-notes-about-the-shop",)])
    assert table.render(22).splitlines() == ["workflow", "write-notes-about-the-", "shop"]
    assert Table(("id",), [("a-0123456789",)]).render(8).splitlines() == ["id", "a-012345", "6789"], "hardly begun"


def test_prose_is_broken_between_words_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "claude works on shop from main"
    assert wrap(text) == text
    assert step("kingdom up", "starts it") == "kingdom up starts it"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "12")
    assert wrap(text).splitlines() == ["claude works", "on shop from", "main"]
    said = step("kingdom workflow diff a-long-name", "shows what changed")
    assert said.splitlines() == ["kingdom workflow diff a-long-name", "  shows what", "  changed"]
    said = step("shop: the branch b in", "/home/ada/worktrees/shop-1")
    assert said.splitlines() == ["shop: the branch b in", "  /home/ada/worktrees/shop-1"], "it can be copied"


def test_a_word_that_is_too_long_is_folded_anywhere() -> None:
    assert Table(("id",), [("0123456789",)]).render(4).splitlines() == ["id", "0123", "4567", "89"]


def test_a_hangul_syllable_takes_two_cells_and_an_accent_none() -> None:
    lines = Table(("name", "n"), [("한글", 1), ("cafe\u0301", 2), ("abcd", 3)]).render().splitlines()
    assert lines == ["name  n", "한글  1", "cafe\u0301  2", "abcd  3"]
    assert Table(("a",), [("가나다",)]).render(4).splitlines() == ["a", "가나", "다"]


def test_a_table_that_has_no_room_still_shows_every_character() -> None:
    shown = Table(("a", "b"), [("한글", "xyz")]).render(1)
    assert set("한글xyz") <= set(shown)


def test_lines_of_a_cell_stay_lines() -> None:
    assert Table(("a", "b"), [("one\ntwo", "x")]).render().splitlines() == ["a    b", "one  x", "two"]


def test_only_our_own_styles_reach_the_terminal() -> None:
    table = Table(("a", "b"), [(Styled("bad", "bold red"), "\x1b[31mred")])
    assert "\x1b" not in table.render()
    header, row = table.render(colours=True).splitlines()
    assert header == "\x1b[1ma\x1b[0m    \x1b[1mb\x1b[0m"
    assert row == "\x1b[1;31mbad\x1b[0m  \N{REPLACEMENT CHARACTER}[31mred"


def test_on_a_pipe_nothing_is_coloured_or_folded(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    show(Styled("up", "green"), Table(("a",), [(long,)]), Table(("b",), [(1,)]))
    assert capsys.readouterr().out == f"up\n\na\n{long}\n\nb\n1\n"
