"""Who may ask for what: the file, who an event is from, what is decided, and what a task carries of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kingdom.agents.sandbox.sandbox import Bubblewrap
from kingdom.court.errors import InvalidConfig
from kingdom.court.home import Home
from kingdom.court.init_home import TEMPLATES_DIR
from kingdom.court.packages.manifest import Manifest
from kingdom.court.trust.config import TrustConfig, load_trust
from kingdom.court.trust.policy import People, Permit, Person, TrustFile, TrustPolicy, people_of, permit_of
from kingdom.court.trust.text_hash import add_text_hash, text_hash, text_hash_problem

RULES = """
tiers:
  team: {}
  visitor: {generals: [gen-pr, gen-triage*], profile: read, mcp: false}
  careful: {profile: edit, sandbox: true}
rules:
  - {source: github, repos: [acme/*], associations: [OWNER, MEMBER], tier: team}
  - {source: github, users: [Friend], tier: careful}
  - {source: github, users: [pest], tier: refuse}
  - {source: github, repos: [acme/*], tier: visitor}
  - {source: slack, users: [U1], channels: [C1], tier: team}
  - {source: webhook_ci, tier: trusted}
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path)
    found.config.mkdir()
    return found


def write(home: Home, text: str) -> None:
    (home.config / "trust.yaml").write_text(text)


def trust(text: str = RULES, **options: Any) -> TrustPolicy:
    return TrustPolicy(TrustConfig.model_validate(yaml.safe_load(text)), **options)


def manifest(**fields: Any) -> Manifest:
    return Manifest.model_validate({"name": "gen-pr", "description": "For tests.", **fields})


def somebody(user: str, association: str | None = None, repo: str = "acme/shop") -> People:
    return People(Person("github", user, association, repo))


# ── the file ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_file_and_with_the_template_nothing_is_decided(home: Home) -> None:
    assert load_trust(home) == TrustConfig()
    write(home, (TEMPLATES_DIR / "trust.yaml").read_text())
    assert load_trust(home) == TrustConfig()
    assert not load_trust(home).decides


def test_the_template_without_its_marks_is_a_valid_file(home: Home) -> None:
    lines = (TEMPLATES_DIR / "trust.yaml").read_text().splitlines()
    write(home, "\n".join(line.removeprefix("# ") for line in lines[3:]))
    config = load_trust(home)
    assert set(config.tiers) == {"team", "visitor"}
    assert len(config.rules) == 5
    assert config.everybody_else == "refuse"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tiers:\n  team: {}\nrules:\n  - {source: jira, tier: team}\n  - {tier: taem}\n", "trust.yaml:5: "),
        ("default: strangers\n", "no tier 'strangers': there are trusted, refuse"),
        ("tiers:\n  refuse: {}\n", "trust.yaml:2"),
        ("tiers:\n  team:\n    profile: write\n", "trust.yaml:3"),
        ("tiers:\n  team:\n    profil: read\n", "did you mean 'profile'?"),
        ("rules:\n  - source: github\n    associations: [MEMBER]\n    tier: trusted\n", "associations need repos"),
        ("rules:\n  - {source: github, repos: [a/b], associations: [FRIEND], tier: trusted}\n", "trust.yaml:2"),
        ("rules:\n  - {source: github}\n", "tier' is missing"),
        ("rulez: []\n", "unknown key 'rulez'"),
    ],
)
def test_mistakes_are_told_with_their_line(home: Home, text: str, told: str) -> None:
    write(home, text)
    with pytest.raises(InvalidConfig) as caught:
        load_trust(home)
    assert told in str(caught.value)


def test_a_mistake_made_later_changes_nothing_and_one_from_the_start_lets_the_outside_wait(home: Home) -> None:
    write(home, "default: refuse\n")
    file = TrustFile(home)
    sound = file.load()
    assert sound.judge(somebody("ann")).refused
    write(home, "default: [\n")
    assert file.load() is sound
    assert file.problem is not None
    fresh = TrustFile(home).load()
    verdict = fresh.judge(somebody("ann"))
    assert verdict.waits
    assert "trust.yaml" in verdict.reason
    assert fresh.judge(People(Person("console", "me"))).permit is not None
    write(home, "default: trusted\n")
    assert file.load().judge(somebody("ann")).permit is not None
    assert file.problem is None


# ── who ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def github(**payload: Any) -> People:
    return people_of({"source": "github", "repo": "acme/shop", "payload": payload})


def test_who_commented_caused_it_and_who_opened_it_wrote_it() -> None:
    found = github(
        actor="ann",
        author="ann",
        actor_association="MEMBER",
        opened_by="mallory",
        association="NONE",
        action="mentioned",
    )
    assert found.cause == Person("github", "ann", "MEMBER", "acme/shop")
    assert found.authors == (Person("github", "mallory", "NONE", "acme/shop"),)


def test_a_commit_is_caused_by_who_opened_the_pull_request_whatever_name_it_carries() -> None:
    found = github(actor="boss", actor_association="OWNER", opened_by="mallory", association="NONE", action="updated")
    assert found == People(Person("github", "mallory", "NONE", "acme/shop"))


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        ({"source": "slack", "payload": {"user": "U1", "channel": "C1"}}, Person("slack", "U1", channel="C1")),
        ({"source": "jira", "payload": {"author": "Ann", "author_id": "a1"}}, Person("jira", "a1")),
        ({"source": "jira", "payload": {"author": "a1"}}, Person("jira")),  # people choose what they are called
        ({"source": "webhook_ci", "payload": {"sender": {"login": "x"}}}, Person("webhook_ci", "x")),
        ({"source": 7, "payload": "odd"}, Person("")),
        ({"source": "github", "payload": {"actor": ["ann"], "opened_by": {}}}, Person("github")),
    ],
)
def test_who_caused_an_event(event: dict[str, Any], cause: Person) -> None:
    assert people_of(event) == People(cause)


def test_what_was_said_before_in_a_slack_thread_has_its_authors() -> None:
    thread: list[object] = [{"user": "U2"}, {"user": "U1"}, {"user": "B3"}, {"user": "U2"}, "x"]
    found = people_of({"source": "slack", "payload": {"user": "U1", "channel": "C1", "thread": thread}})
    cause, *authors = (Person("slack", user, channel="C1") for user in ("U1", "U2", "B3"))
    assert found == People(cause, tuple(authors))
    for odd in (None, "U2", {"user": "U2"}, []):
        payload = {"user": "U1", "channel": "C1", "thread": odd}
        assert people_of({"source": "slack", "payload": payload}) == People(cause)


def test_who_reported_a_ticket_wrote_what_others_comment_on() -> None:
    found = people_of({"source": "jira", "payload": {"author_id": "a1", "reporter_id": "a2"}})
    assert found == People(Person("jira", "a1"), (Person("jira", "a2"),))


# ── what is decided ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("people", "tier"),
    [
        (somebody("ann", "MEMBER"), "team"),
        (somebody("ann", "MEMBER", "evil/own"), None),  # anybody is a member of something
        (somebody("mallory", "CONTRIBUTOR"), "visitor"),
        (somebody("mallory"), "visitor"),
        (somebody("friend", repo="other/place"), "careful"),
        (somebody("my-friend", repo="other/place"), None),
        (somebody("pest"), None),
        (People(Person("slack", "U1", channel="C1")), "team"),
        (People(Person("slack", "U2", channel="C1")), "trusted"),  # the envoy has let them in
        (People(Person("webhook_ci")), "trusted"),
        (People(Person("webhook_cd")), None),
        (People(Person("jira", "a1")), None),
        (People(Person("console", "me")), "trusted"),
        (People(Person("king")), "trusted"),
    ],
)
def test_the_first_rule_that_fits_decides_and_others_are_refused(people: People, tier: str | None) -> None:
    verdict = trust().judge(people)
    assert (verdict.permit.tier if verdict.permit else None) == tier
    assert verdict.refused == (tier is None)


def test_a_refusal_says_who_and_why() -> None:
    assert trust().judge(somebody("pest")).reason == "github user pest is refused (config/trust.yaml: rule 3)"
    reason = trust().judge(People(Person("jira", "a1"))).reason
    assert reason == "jira user a1 is refused (config/trust.yaml: no rule names them)"


@pytest.mark.parametrize(
    ("people", "place"),
    [
        (somebody("pest"), 2),
        (somebody("dependabot[bot]", repo="other/repo"), 6),
        (People(Person("jira", "712020:\N{PILE OF POO}'\"}")), 6),
    ],
)
def test_the_line_that_a_refusal_names_lets_them_in_with_the_least_that_a_tier_may(people: People, place: int) -> None:
    refusal = trust().judge(people).refusal
    where, _, line = refusal.partition("; to allow it, add ")[2].partition(" - ")
    assert where == (f"above rule {place + 1}" if place < 6 else "below rules:")
    rules = yaml.safe_load(RULES)
    rules["rules"].insert(place, yaml.safe_load(line))
    permit = TrustPolicy(TrustConfig.model_validate(rules)).judge(people).permit
    assert permit is not None
    assert (permit.tier, permit.profile) == ("visitor", "read")


@pytest.mark.parametrize("people", [People(Person("jira")), People(Person("slack", "U9"))])
def test_a_refusal_of_nobody_known_or_in_slack_names_no_line(people: People) -> None:
    decision = trust(slack_users=["U1"]).judge(people)
    assert decision.refusal == decision.reason != ""


def test_without_rules_everybody_is_trusted_and_a_rule_for_all_does_not_lock_the_owner_out() -> None:
    assert trust("{}").judge(somebody("anybody")).permit == Permit("trusted", "github user anybody")
    closed = trust("rules: [{tier: refuse}]")
    assert closed.judge(somebody("anybody")).refused
    assert closed.judge(People(Person("console", "me"))).permit is not None


@pytest.mark.parametrize(
    ("users", "user", "heard"),
    [
        (["U7"], "U7", True),
        (["U7"], "U8", False),
        (["*"], "U8", True),
        ([], "U7", False),
        ([], "U1", True),  # a rule names them
    ],
)
def test_the_list_of_slack_users_holds_after_the_rules(users: list[str], user: str, heard: bool) -> None:
    for text in (RULES, "default: visitor\n" + RULES):
        verdict = trust(text, slack_users=users).judge(People(Person("slack", user, channel="C1")))
        assert (verdict.permit is not None) == heard


def test_whose_words_are_read_decides_with_what_tools() -> None:
    member, stranger = Person("github", "ann", "MEMBER", "acme/shop"), Person("github", "mallory", None, "acme/shop")
    verdict = trust().judge(People(member, (stranger,)))
    assert verdict.permit == Permit("team", "github user ann", "read", sandbox=False, mcp=False)
    assert verdict.generals is None  # she may have any general look at it
    pest = Person("github", "pest", None, "acme/shop")
    assert trust().judge(People(member, (pest,))).permit == verdict.permit
    assert trust().judge(People(stranger, (member,))).permit == Permit(
        "visitor", "github user mallory", "read", mcp=False
    )


# ── with which general ────────────────────────────────────────────────────────────────────────────────────────────


def denial_reason(people: People, text: str = RULES, **fields: Any) -> str | None:
    judge = trust(text)
    found = manifest(**fields)
    return judge.denial_reason(judge.judge(people), found.name, found)


def test_a_tier_may_use_the_generals_it_names() -> None:
    assert denial_reason(somebody("mallory")) is None
    assert denial_reason(somebody("mallory"), name="gen-triage-2") is None
    assert denial_reason(somebody("mallory"), name="gen-deploy") == (
        "github user mallory is of the tier 'visitor' (config/trust.yaml), which may not use gen-deploy"
    )


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.court.trust.policy.find_bubblewrap", lambda: Bubblewrap(None, problem="not installed"))


@pytest.fixture
def bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.court.trust.policy.find_bubblewrap", lambda: Bubblewrap("/usr/bin/bwrap"))


@pytest.mark.usefixtures("bubblewrap")
def test_where_agents_are_confined_every_engine_with_a_process_is_in_a_sandbox() -> None:
    friend = somebody("friend")
    assert denial_reason(friend, engine="claude") is None
    assert denial_reason(friend, engine="codex", evidence=[{"command": ["make", "test"]}]) is None
    assert "engine scripted" in str(denial_reason(friend, engine="scripted"))
    assert Permit("t", "x", "full", sandbox=True).profile_for(manifest(engine="codex", profile="full")) == "full"


@pytest.mark.usefixtures("no_bubblewrap")
def test_a_sandbox_is_asked_for_in_vain_where_there_is_none() -> None:
    friend = somebody("friend")
    assert "engine claude, which the operating system does not confine" in str(denial_reason(friend, engine="claude"))
    assert denial_reason(friend, engine="codex") is None
    assert denial_reason(friend, RULES + "sandboxed: [claude]\n", engine="claude") is None
    checked = denial_reason(friend, engine="codex", evidence=[{"command": ["make", "test"]}])
    assert "commands run as evidence" in str(checked)


def test_what_a_workflow_does_cannot_be_limited() -> None:
    workflow = {"mode": "workflow", "template": "fix"}
    assert "template chooses the tools" in str(denial_reason(somebody("mallory"), **workflow))
    assert denial_reason(somebody("ann", "OWNER"), **workflow) is None


@pytest.mark.parametrize(
    ("permit", "fields", "profile"),
    [
        (Permit("t", "x", "read"), {"profile": "full"}, "read"),
        (Permit("t", "x", "full"), {"profile": "edit"}, "edit"),
        (Permit("t", "x", "edit"), {"profile": "read"}, "read"),
        (Permit("t", "x", "full", sandbox=True), {"profile": "full", "engine": "codex"}, "edit"),
        (Permit("t", "x", "full", sandbox=True, sandboxed=("claude",)), {"profile": "full"}, "full"),
    ],
)
@pytest.mark.usefixtures("no_bubblewrap")
def test_the_lower_of_both_profiles_counts(permit: Permit, fields: dict[str, Any], profile: str) -> None:
    assert permit.profile_for(manifest(**{"engine": "claude", **fields})) == profile


def test_under_a_profile_an_engine_gets_no_options_that_give_more() -> None:
    engine = {"name": "claude", "options": {"allowed_tools": ["Bash(*)"], "args": ["--yolo"], "effort": "high"}}
    assert Permit("t", "x", "read").options_for(manifest(engine=engine)) == {"effort": "high"}
    assert Permit("t", "x").options_for(manifest(engine=engine)) == engine["options"]


def test_a_permit_survives_its_journey_and_nonsense_takes_away_everything() -> None:
    permit = Permit("visitor", "github user mallory", "read", sandbox=True, mcp=False, sandboxed=("claude",))
    assert permit_of(json.loads(json.dumps({"trust": permit.document()}))) == permit
    assert permit_of({}) is None
    odds: list[Any] = [{}, [], "full", {**permit.document(), "profile": "root"}, {**permit.document(), "sandbox": "no"}]
    for odd in odds:
        least = permit_of({"trust": odd})
        assert least is not None
        assert (least.profile, least.sandbox, least.mcp) == ("read", True, False)


# ── frozen words ──────────────────────────────────────────────────────────────────────────────────────────────────

PAYLOAD: dict[str, Any] = {
    "title": "Discounts",
    "body": "whole carts",
    "comment": {"body": "please"},
    "line_comments": [{"body": "here"}],
    "number": 7,
}


def test_the_hash_is_that_of_the_words() -> None:
    frozen = add_text_hash({**PAYLOAD, "text_sha256": "what somebody claims"})
    words = '["Discounts","whole carts","please","here"]'
    assert frozen["text_sha256"] == hashlib.sha256(words.encode()).hexdigest() == text_hash(PAYLOAD)
    assert text_hash_problem(frozen) is None
    assert text_hash_problem({**frozen, "number": 8, "answer": "yes"}) is None
    assert add_text_hash({"number": 7}) == {"number": 7}
    assert text_hash_problem(PAYLOAD) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"title": "Discount"},
        {"body": "whole carts "},
        {"body": None},
        {"description": "more"},
        {"comment": {"body": "now"}},
        {"line_comments": []},
        {"title": "Discountswhole carts", "body": ""},
        {"text_sha256": 7},
    ],
)
def test_any_other_word_is_noticed(changed: dict[str, Any]) -> None:
    assert "changed after the event" in str(text_hash_problem({**add_text_hash(PAYLOAD), **changed}))
