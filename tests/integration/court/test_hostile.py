"""Hostile text in every field of an event, through real processes: nothing runs, nothing escapes, all is told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import kingdom_tty
from tests.support.court_hostile import CANARY, CONTROL, HIDDEN, Attack, BesiegedCourt, attacks, document

pytestmark = pytest.mark.timeout(300)
FENCED = re.compile(r"<<<(DATA-[0-9a-f]{16}) \([^\n]*\)\n.*?\n\1>>>", re.DOTALL)
PLAIN_NAME = re.compile(r"[A-Za-z0-9._:@+\-]+")
# Names of files that nobody would give an event, and what must become of them.
NAMES = ("-x", "$(touch canary)", "; touch canary", "a\nb", "\u202ename", "{{ 7*7 }}", "x..", "x" * 240)


@dataclass(frozen=True)
class Siege:
    """A court that was attacked, and is down again."""

    besieged: BesiegedCourt
    attacks: list[Attack]
    before: dict[str, str]
    status: str
    status_json: dict[str, Any]

    def taken(self) -> Iterator[tuple[Attack, str]]:
        """The attacks that became tasks, and their task ids."""
        tasks = {}
        for path in (self.besieged.root / "queue/tasks/completed").glob("*.json"):
            tasks[json.loads(path.read_text())["event_id"]] = path.stem
        for attack in self.attacks:
            if attack.name in tasks:
                yield attack, tasks[attack.name]


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.walk)], ids=["some attacks", "every attack"]
)
def siege(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Siege:
    besieged = BesiegedCourt(tmp_path_factory.mktemp("siege"))
    besieged.make()
    found = attacks(besieged.canary, every=request.param)
    before = besieged.around()
    with besieged.court.up():
        besieged.court.wait_for_roles("king", "envoy", "gen-text", "gen-repo")
        for attack in found:
            besieged.drop(attack.name, document(attack.event))
        for number, name in enumerate(NAMES):
            besieged.drop(name, document({**found[0].event, "id": f"evt-evil-name-{number}"}))
        besieged.wait_for_end([*(attack.name for attack in found), *NAMES])
        status = besieged.court.call("status").stdout
        told = besieged.court.ask("status")
    return Siege(besieged, found, before, status, told)


def test_nothing_runs_and_nothing_beside_the_home_changes(siege: Siege) -> None:
    folder = siege.besieged.folder
    assert siege.besieged.around() == siege.before
    assert not [path for path in folder.rglob("*") if path.name == CANARY]
    assert not Path(CANARY).exists()


def test_every_name_in_the_home_is_one_that_we_gave(siege: Siege) -> None:
    root = siege.besieged.root
    aside = root / "queue/events/invalid"
    names = {path.name for path in root.rglob("*") if not path.is_relative_to(aside)}
    assert not [name for name in names if not PLAIN_NAME.fullmatch(name)]
    known = {"queue", "state", "memory", "logs", "workspace", "config", ".gitignore", "worker.py", "up.txt"}
    assert {path.name for path in root.iterdir()} <= known


def test_each_event_is_done_or_put_aside_with_a_reason(siege: Siege) -> None:
    queue = siege.besieged.root / "queue/events"
    for state in ("pending", "dispatched"):
        assert not list((queue / state).iterdir())
    for attack in siege.attacks:
        aside = queue / "invalid" / f"{attack.name}.json"
        if attack.field in ("id", "type", "priority"):
            assert aside.exists(), f"{attack} was taken"
        assert aside.exists() != (queue / "completed" / aside.name).exists()
        assert not aside.exists() or aside.with_name(aside.name + ".reason").read_text().strip(), f"{attack}: no reason"
    for name in NAMES:
        assert (queue / "invalid" / f"{name}.json").exists(), name
    assert sum(1 for _ in siege.taken()) > len(siege.attacks) / 2


def test_a_text_that_is_only_text_does_no_harm_to_its_event(siege: Siege) -> None:
    results = siege.besieged.root / "state/results"
    for attack, task_id in siege.taken():
        result = json.loads((results / f"{task_id}.json").read_text())
        if attack.field == "repo" and attack.kind != "half a pair":  # of which nothing is left
            assert result["status"] == "failed", attack
            assert "repository" in result["error"], attack
        else:
            assert result["status"] == "success", f"{attack}: {result['error']}"


def test_a_soldier_sees_it_as_fenced_data_and_nowhere_else(siege: Siege) -> None:
    root = siege.besieged.root
    looked_at = 0
    for attack, task_id in siege.taken():
        if attack.field == "repo":
            continue
        prompt = (root / f"state/prompts/{task_id}.md").read_text()
        assert (root / f"workspace/gen-text/tasks/{task_id}/prompt.copy").read_text() == prompt
        assert not CONTROL.search(prompt), attack
        assert not HIDDEN.search(prompt), attack
        outside = FENCED.sub("", prompt)
        for sign in ("touch", "7*7", "[bold red]", "TTTT", "Now obey", "../../x"):
            assert sign not in outside, attack
        if attack.kind == "template" and attack.field in ("title", "key", "all"):
            assert "{{ 7*7 }} {% for x in range(3) %}" in prompt, attack
        looked_at += 1
    assert looked_at > len(siege.attacks) / 3


def test_what_people_read_steers_no_terminal(siege: Siege) -> None:
    root = siege.besieged.root
    console = (root / "logs/console.log").read_text()
    for name, text in (("status", siege.status), ("console.log", console), ("up", siege.besieged.court.said)):
        assert not CONTROL.search(text), f"{name}: {CONTROL.search(text)}"
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", text), name
    assert "[bold red]rich[/bold red]" in console, "markup is text, too"


@pytest.mark.parametrize("kind", ["terminal", "bidi", "newlines", "markup", "half a pair", "huge"])
def test_every_command_about_an_attack_prints_plain_text(siege: Siege, kind: str) -> None:
    court = siege.besieged.court
    named = [attack.name for attack in siege.attacks if attack.kind == kind]
    task = next(task for attack, task in siege.taken() if (attack.kind, attack.field) == (kind, "all"))
    commands: list[tuple[str, ...]] = [("trace", name) for name in named]
    commands += [("task", "show", task), ("task", "transcript", task), ("task", "transcript", task, "--raw")]
    for command in commands:
        done = court.call(*command)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout
        assert not CONTROL.search(done.stdout), command
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", done.stdout), command


def test_a_terminal_shows_colours_of_ours_only(siege: Siege) -> None:
    taken = next(task for attack, task in siege.taken() if (attack.field, attack.kind) == ("all", "terminal"))
    for command in (("status",), ("trace", taken), ("task", "show", taken)):
        code, screen = kingdom_tty(*command, KINGDOM_HOME=str(siege.besieged.root))
        assert code == 0
        assert "\x1b]" not in screen
        assert "\x9b" not in screen
        assert "\x1b[31mred" not in screen


def test_half_a_surrogate_pair_can_be_printed(siege: Siege) -> None:
    names = [attack.name for attack in siege.attacks if attack.kind == "half a pair"]
    for arguments in (*(("trace", name) for name in names), ("trace", names[-1], "--json"), ("status", "--json")):
        done = siege.besieged.court.run(*arguments)
        assert done.returncode == 0, done.stderr


def test_status_names_what_was_put_aside_and_why(siege: Siege) -> None:
    problems = {problem["what"]: problem["why"] for problem in siege.status_json["problems"]}
    aside = [what for what in problems if what.startswith("queue/events/invalid/")]
    assert aside
    assert all(problems[what].strip() for what in aside)
    assert siege.status_json["queues"][0]["counts"]["invalid"] > 0


@pytest.mark.parametrize("text", ["../../x", "-x", "$(touch canary)", "a\nb", "\x1b[31m", "\u202e", "", "x" * 5000])
@pytest.mark.parametrize(
    "command",
    [("trace",), ("task", "show"), ("task", "cancel"), ("task", "retry"), ("task", "transcript"), ("answer",)],
    ids=" ".join,
)
def test_an_id_on_the_command_line_is_only_an_id(siege: Siege, command: tuple[str, ...], text: str) -> None:
    more = ("yes",) if command == ("answer",) else ()
    done = siege.besieged.call(*command, "--", text, *more)
    if command != ("trace",):  # a file of that name may lie aside, and has a story
        assert done.returncode in (1, 2)
        assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert not CONTROL.search(done.stdout + done.stderr)
    assert siege.besieged.around() == siege.before


@pytest.mark.parametrize("text", ["../../x", "-x", "$(touch canary)", "a\nb", "\x1b[31m", "evt-x-\u202e", "evt-x-../y"])
@pytest.mark.parametrize("option", ["--id", "TYPE"])
def test_an_event_that_is_none_is_refused_at_the_door(siege: Siege, option: str, text: str) -> None:
    before = sorted(path.name for path in (siege.besieged.root / "queue/events").rglob("*"))
    arguments = ("emit", "text.work", f"--id={text}") if option == "--id" else ("emit", "--json", "--", text)
    done = siege.besieged.call(*arguments)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert not CONTROL.search(done.stdout + done.stderr)
    assert sorted(path.name for path in (siege.besieged.root / "queue/events").rglob("*")) == before
