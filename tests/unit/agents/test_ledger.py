"""The ledger: what was used, once for each run."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.ledger import Ledger, LedgerSum, ledger_entry
from kingdom.agents.port import Order, Outcome, Tokens


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def line(run_id: str, ts: str, cost: float | None = 1.0, tokens: int = 10, general: str = "gen-pr") -> dict[str, Any]:
    order = Order(run_id, "task-1", "claude", "", Path("/w"), Path("/r"), labels={"general": general})
    return ledger_entry(order, Outcome("success", cost_usd=cost, tokens=Tokens(input=tokens)), at(ts))


def test_a_line_says_who_did_what_and_what_it_cost(tmp_path: Path) -> None:
    order = Order("run-1", "task-1", "codex", "", Path("/w"), Path("/r"), labels={"general": "gen-pr", "status": "x"})
    outcome = Outcome(
        "killed",
        session_id="s",
        model="m",
        tokens=Tokens(1, 2, 3, 4),
        cost_usd=0.5,
        cost_source="estimate",
        turns=7,
        started_at=10,
        ended_at=12.5,
    )
    Ledger(tmp_path).append(ledger_entry(order, outcome, at("2026-03-01T00:00:00"), price_known=False))
    assert json.loads((tmp_path / "2026-03.jsonl").read_text()) == {
        "general": "gen-pr",
        "status": "killed",
        "ts": "2026-03-01T00:00:00.000Z",
        "run_id": "run-1",
        "task_id": "task-1",
        "engine": "codex",
        "model": "m",
        "session_id": "s",
        "tokens": {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4, "total": 10},
        "cost_usd": 0.5,
        "source": "estimate",
        "turns": 7,
        "seconds": 2.5,
        "price": "unknown model, priced as the dearest known",
    }


def test_sums_are_of_a_span_across_months_and_by_general(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(line("a", "2026-02-28T10:00:00"))
    ledger.append(line("b", "2026-02-28T23:00:00", 2.0, 20))
    ledger.append(line("c", "2026-03-01T01:00:00", None, 5, "gen-jira"))
    ledger.append(line("d", "2026-03-02T00:00:00", 8.0))
    totals = ledger.totals(at("2026-02-28T12:00:00"), at("2026-03-02T00:00:00"))
    assert (totals.cost_usd, totals.tokens, totals.runs) == (2.0, 25, 2)
    assert totals.by_general == {"gen-pr": LedgerSum(2.0, 20, 1), "gen-jira": LedgerSum(0.0, 5, 1)}
    assert ledger.totals(0).runs == 4
    assert Ledger(tmp_path / "none").totals(0).runs == 0


def test_a_run_written_twice_counts_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(line("a", "2026-03-01T01:00:00"))
    ledger.append(line("a", "2026-03-01T01:00:01"))
    assert ledger.totals(0).runs == 1


def test_a_ledger_knows_whom_it_has(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(line("a", "2026-03-01T00:00:01"))
    assert Ledger(tmp_path).has("a", at("2026-02-28T23:59:00"))
    assert not ledger.has("b", 0)


def test_asking_again_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, writer = Ledger(tmp_path), Ledger(tmp_path)
    for number in range(100):
        writer.append(line(f"r{number}", "2026-03-01T01:00:00"))
    assert ledger.totals(0).runs == 100
    parsed: list[bytes] = []
    loads = json.loads

    def counted(raw: bytes) -> Any:
        parsed.append(raw)
        return loads(raw)

    monkeypatch.setattr("kingdom.agents.ledger.json.loads", counted)
    writer.append(line("new", "2026-03-01T02:00:00"))
    assert ledger.totals(0).runs == 101
    assert ledger.totals(0).runs == 101
    assert len(parsed) == 1


def test_torn_and_senseless_lines_are_passed_over_and_swallow_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(line("a", "2026-03-01T01:00:00"))
    path = tmp_path / "2026-03.jsonl"
    with path.open("ab") as file:
        file.write(b'[1]\n"x"\n{"run_id": "x", "ts": 5}\n\xff\n{"run_id": "torn", "ts": "2026-03')
    assert ledger.totals(0).runs == 1
    ledger.append(line("b", "2026-03-01T01:00:00"))
    assert ledger.totals(0).runs == 2


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(line("a", "2026-03-01T01:00:00"))
    ledger.append(line("b", "2026-03-01T01:00:00"))
    assert ledger.totals(0).runs == 2
    path = tmp_path / "2026-03.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)[:1]
    path.unlink()
    path.write_bytes(kept[0])
    assert ledger.totals(0).runs == 1


def test_many_may_append_at_once(tmp_path: Path) -> None:
    def write(name: int) -> None:
        for number in range(20):
            Ledger(tmp_path).append(line(f"{name}-{number}", "2026-03-01T01:00:00"))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Ledger(tmp_path).totals(0).runs == 100


def test_several_lines_at_once_go_each_into_its_month(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.append(line("a", "2026-02-28T23:59:59"), line("b", "2026-03-01T00:00:00"), line("c", "2026-02-28T23:59:59"))
    counts = {path.stem: path.read_text().count("\n") for path in (tmp_path / "ledger").iterdir()}
    assert counts == {"2026-02": 2, "2026-03": 1}
    assert ledger.totals(0).runs == 3


def test_who_asks_while_another_is_reading_waits_for_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kingdom.agents import ledger as module

    books = Ledger(tmp_path)
    books.append(*(line(f"run-{number}", "2026-03-01T00:00:00") for number in range(3)))
    reading, go_on = threading.Event(), threading.Event()
    take = module._Month._add_line

    def slowly(month: Any, raw: bytes) -> None:
        reading.set()
        assert go_on.wait(30)
        take(month, raw)

    monkeypatch.setattr(module._Month, "_add_line", slowly)
    answers: list[bool] = []
    since = at("2026-03-01T00:00:00")
    first = threading.Thread(target=lambda: answers.append(books.has("run-0", since)))
    second = threading.Thread(target=lambda: answers.append(books.has("run-2", since)))
    first.start()
    assert reading.wait(30)
    second.start()
    second.join(0.05)  # time in which it would answer wrongly
    go_on.set()
    first.join(30)
    second.join(30)
    assert answers == [True, True]
