"""The certificate as one page for people."""

from __future__ import annotations

from collections import Counter
from typing import Any

_CHECKED = {
    "lost": "every event that was accepted is finished in the end, with its effect",
    "doubled": "behind an inbox no effect is made twice; no event completes twice; nothing settled is handled again",
    "stuck": "after each round nothing is waiting or held once leases are over; no part took longer than its limit",
    "strays": "no process is left after a part, no temporary file or half-written document after a round",
}
_LIMITS = (
    "Crash points of single system calls on Kafka: its client makes them in threads of its own.",
    "GitHub, Jira, Slack and the models behind the agents: the tests play them on loopback.",
    "Other machines, kernels and versions of Python than those named above.",
)


def page(content: dict[str, Any]) -> str:
    """Return the page of what :class:`tests.certificate.run.Certifier` found."""
    parts = content["parts"]
    return "\n".join(
        [
            "# Certificate",
            "",
            f"Each of {len(parts)} parts passed on this commit. `make certificate` repeats it.",
            "",
            *_table(("", ""), _about(content)),
            "",
            "## Found",
            "",
            *_table(
                ("", "", "checked"),
                [(name, str(count), _CHECKED[name]) for name, count in content["findings"].items()],
            ),
            "",
            "## Counted, by kind",
            "",
            *_table(("Kind", "Parts", "Count"), _by_kind(parts)),
            "",
            "## Parts",
            "",
            *_table(
                ("Part", "Count", "Minutes"),
                [(part["name"], _words(part["counts"]), f"{part['seconds'] / 60:.1f}") for part in parts],
            ),
            "",
            "## Not covered",
            "",
            *(f"- {line}" for line in _uncovered(content)),
            "",
        ]
    )


def _about(content: dict[str, Any]) -> list[tuple[str, ...]]:
    changed = f" with {len(content['changes'])} uncommitted changes" if content["changes"] else ""
    return [
        ("Commit", f"`{content['commit']}`{changed}"),
        ("Made", content["made"]),
        ("Machine", content["machine"]),
        ("Python", content["python"]),
        ("Tools", ", ".join(content["tools"])),
        ("Seed", f"{content['seed']}"),
        ("Took", f"{content['seconds'] / 60:.0f} minutes"),
    ]


def _by_kind(parts: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    rows = []
    for kind in dict.fromkeys(part["kind"] for part in parts):
        counts: Counter[str] = Counter()
        own = [part for part in parts if part["kind"] == kind]
        for part in own:
            counts.update(part["counts"])
        rows.append((kind, str(len(own)), _words(counts)))
    return rows


def _uncovered(content: dict[str, Any]) -> list[str]:
    lines = [f"{part['name']}: {reason}" for part in content["parts"] for reason in part["uncovered"]]
    if not content["strays_looked_for_after_each_part"]:
        lines.append("Processes left after a part: they are looked for on Linux only.")
    return [*lines, *_LIMITS]


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in lines]
