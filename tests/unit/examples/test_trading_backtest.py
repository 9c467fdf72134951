"""The arithmetic of the trading example's backtest."""

from __future__ import annotations

import pytest

from examples.trading.backtest import Outcome, crossover, generate_candles, moving_average


def test_moving_average_starts_with_the_first_full_window() -> None:
    assert moving_average([1, 2, 3, 4], 2) == [1.5, 2.5, 3.5]


def test_candles_are_the_same_for_the_same_seed() -> None:
    assert len(generate_candles(50, seed=3)) == 50
    assert generate_candles(50, seed=3) == generate_candles(50, seed=3) != generate_candles(50, seed=4)


def test_crossover_holds_from_the_candle_after_the_one_that_shows_it() -> None:
    # The fast average (1) is above the slow one (2) after candles 2 and 3, below after 4: held for candles 3 and 4.
    assert crossover([10, 10, 20, 40, 20, 20], fast=1, slow=2) == Outcome(
        trades=1, profit=pytest.approx(0.0), drawdown=pytest.approx(0.5)
    )


def test_a_market_that_only_falls_is_never_entered() -> None:
    assert crossover([9, 8, 7, 6, 5], fast=1, slow=3) == Outcome(trades=0, profit=0.0, drawdown=0.0)


def test_windows_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="fast < slow < candles"):
        crossover([1.0, 2.0], fast=2, slow=2)
