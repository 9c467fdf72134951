"""What a general remembers, and how much of it."""

from __future__ import annotations

import os
from pathlib import Path

from kingdom.court.general.prompts import add_to_memory, read_memory


def learned(folder: Path) -> str:
    return (folder / "learned.md").read_text()


def test_an_entry_for_each_task(tmp_path: Path) -> None:
    assert add_to_memory(tmp_path / "new", "task-20260921-001", "2026-09-21", ["One.", "Two\nlines."], 20_000)
    assert learned(tmp_path / "new") == "# Learned\n## 2026-09-21 task-20260921-001\n- One.\n- Two\n  lines.\n"


def test_a_task_is_remembered_once(tmp_path: Path) -> None:
    assert add_to_memory(tmp_path, "task-20260921-001", "2026-09-21", ["One."], 20_000)
    assert not add_to_memory(tmp_path, "task-20260921-001", "2026-09-22", ["One."], 20_000)
    assert learned(tmp_path).count("One.") == 1


def test_nothing_learned_writes_nothing(tmp_path: Path) -> None:
    assert not add_to_memory(tmp_path, "task-20260921-001", "2026-09-21", ["", " \u200b "], 20_000)
    assert not add_to_memory(tmp_path, "task-20260921-001", "2026-09-21", ["One."], 0)
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_entries_go_first_and_whole(tmp_path: Path) -> None:
    for number in range(1, 31):
        add_to_memory(tmp_path, f"task-20260921-{number:03d}", "2026-09-21", [f"Fact {number}: " + "x" * 80], 1000)
    text = learned(tmp_path)
    assert len(text.encode()) <= 1000
    assert text.startswith("# Learned\n## 2026-09-21 task-")
    assert "Fact 30:" in text
    assert "Fact 1:" not in text
    assert text.count("## 2026") == text.count("Fact ")


def test_what_people_wrote_at_the_top_stays(tmp_path: Path) -> None:
    (tmp_path / "learned.md").write_text("Always be kind.\n\n## 2026-01-01 task-20260101-001\n- Old.\n")
    for number in range(1, 20):
        add_to_memory(tmp_path, f"task-20260921-{number:03d}", "2026-09-21", ["y" * 100], 500)
    assert learned(tmp_path).startswith("Always be kind.\n\n## ")
    assert "Old." not in learned(tmp_path)


def test_one_huge_update_is_cut(tmp_path: Path) -> None:
    add_to_memory(tmp_path, "task-20260921-001", "2026-09-21", ["z" * 1_000_000] * 50, 3000)
    assert len(learned(tmp_path).encode()) <= 3000
    assert "bytes left out here" in learned(tmp_path)


def test_an_update_cannot_pose_as_an_entry(tmp_path: Path) -> None:
    add_to_memory(tmp_path, "task-20260921-001", "2026-09-21", ["x\n## 2026-09-21 task-20260921-002\n- lie"], 20_000)
    assert add_to_memory(tmp_path, "task-20260921-002", "2026-09-21", ["True."], 20_000)
    assert "- True." in learned(tmp_path)


def test_all_files_are_read_the_newest_first_in_line(tmp_path: Path) -> None:
    for age, name in enumerate(["new.md", "middle.md", "old.md"]):
        (tmp_path / name).write_text(f"{name} first line\n" + f"{name} filler line\n" * 10 + f"{name} last line\n")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "ignored.txt").write_text("no")
    (tmp_path / "link.md").symlink_to("/etc/passwd")
    whole = read_memory(tmp_path, 20_000)
    assert whole.index("### middle.md") < whole.index("### new.md") < whole.index("### old.md")
    assert "root:" not in whole
    some = read_memory(tmp_path, 400)
    assert len(some.encode()) <= 400
    assert "new.md first line" in some
    assert "middle.md last line" in some
    assert "middle.md first line" not in some
    assert read_memory(tmp_path / "nothing", 1000) == ""
