"""YAML files of people: right ones become models, wrong ones become sentences with a file and a line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from kingdom.base.yamlfile import MAX_BYTES, YamlProblem, load_yaml, parse_yaml


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Wheel(Strict):
    size: int = Field(default=28, ge=1)
    colour: Literal["black", "white"] = "black"


class Lamp(Strict):
    lumen: int


class Bell(Strict):
    bell: list[str]
    loud: int = Field(default=1, ge=1)


class Bicycle(Strict):
    name: str = "bicycle"
    fast: bool = False
    weight: float = 10.0
    wheels: list[Wheel] = Field(default_factory=list)
    parts: dict[str, Wheel] = Field(default_factory=dict)
    light: Lamp | None = None
    lamps: dict[str, Lamp] = Field(default_factory=dict)
    noise: list[Annotated[Annotated[Bell, Tag("bell")], Discriminator(lambda _: "bell")]] = Field(default_factory=list)
    extra: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _not_heavy(self) -> Bicycle:
        if self.weight > 100:
            raise ValueError("nobody can carry it")
        return self


def problems_of(text: str) -> list[str]:
    with pytest.raises(YamlProblem) as caught:
        parse_yaml(text, Bicycle, "b.yaml")
    return caught.value.problems


def test_a_right_file_becomes_the_model(tmp_path: Path) -> None:
    path = tmp_path / "b.yaml"
    path.write_text("# mine\nname: red\nwheels:\n  - size: 26\n  - {colour: white}\n", encoding="utf-8")
    bicycle = load_yaml(path, Bicycle)
    assert bicycle.name == "red"
    assert [wheel.size for wheel in bicycle.wheels] == [26, 28]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\ufeff# a byte order mark\n"])
def test_an_empty_file_is_all_defaults(text: str, tmp_path: Path) -> None:
    path = tmp_path / "b.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_yaml(path, Bicycle) == Bicycle()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("13:00", "13:00"),
        ("2026-01-31", "2026-01-31"),
        ("no", "no"),
        ("on", "on"),
        ("0123", "0123"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("=", "="),
        ("true", True),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-7", -7),
        ("+7", 7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ('"12"', "12"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_words_mean_what_yaml_1_2_says(written: str, read: object) -> None:
    found = parse_yaml(f"extra:\n  value: {written}\n", Bicycle, "b.yaml").extra["value"]
    assert found == read
    assert type(found) is type(read)


def test_an_alias_and_a_merge_are_understood() -> None:
    text = "parts:\n  a: &a {size: 20, colour: white}\n  b: {<<: *a, size: 24}\n"
    parts = parse_yaml(text, Bicycle, "b.yaml").parts
    assert parts["b"] == Wheel(size=24, colour="white")


def test_an_unknown_key_is_told_with_the_one_that_was_meant() -> None:
    assert problems_of("name: x\nwheel: []\n") == ["b.yaml:2: unknown key 'wheel' (did you mean 'wheels'?)"]


def test_an_unknown_key_that_is_like_no_other_lists_those_there_are() -> None:
    assert problems_of("light:\n  zzz: 1\n  lumen: 2\n") == ["b.yaml:2: unknown key 'light.zzz' (known: lumen)"]


def test_an_unknown_key_in_a_list_and_in_a_map_is_found_on_its_own_line() -> None:
    text = "wheels:\n  - size: 1\n  - size: 2\n    color: black\nparts:\n  left:\n    siz: 3\n"
    assert problems_of(text) == [
        "b.yaml:4: wheels number 2: unknown key 'color' (did you mean 'colour'?)",
        "b.yaml:7: unknown key 'parts.left.siz' (did you mean 'size'?)",
    ]


def test_every_problem_is_told_in_the_order_of_the_file() -> None:
    text = "weight: heavy\nwheels:\n- size: 0\n- colour: green\n-\nfast: yes\nlight: {}\n"
    assert problems_of(text) == [
        "b.yaml:1: weight: must be a valid number, not 'heavy'",
        "b.yaml:3: wheels number 1, size: must be greater than or equal to 1, not 0",
        "b.yaml:4: wheels number 2, colour: must be 'black' or 'white', not 'green'",
        "b.yaml:5: wheels number 3: must be a valid dictionary or instance of Wheel, not None",
        "b.yaml:6: fast: must be a valid boolean, not 'yes'",
        "b.yaml:7: 'light.lumen' is missing",
    ]


def test_a_member_of_a_union_that_is_called_as_one_of_its_keys_leads_to_the_right_line() -> None:
    text = (
        "noise:\n  - bell: [a]\n    loud: 0\n  - loud: 2\n    bell:\n      - ok\n      - 7\n  - bell: []\n    lout: 3\n"
    )
    assert problems_of(text) == [
        "b.yaml:3: noise number 1, loud: must be greater than or equal to 1, not 0",
        "b.yaml:7: noise number 2, bell number 2: must be a valid string, not 7",
        "b.yaml:9: noise number 3: unknown key 'lout' (did you mean 'loud'?)",
    ]


def test_what_is_missing_is_not_looked_for_beside_its_place() -> None:
    text = "lumen: 1\nlamps:\n  left: {}\n  lumen: {lumen: 3}\n"
    assert problems_of(text) == [
        "b.yaml:1: unknown key 'lumen' (known: extra, fast, lamps, light, name, noise, parts, weight, wheels)",
        "b.yaml:3: 'lamps.left.lumen' is missing",
    ]


def test_two_problems_on_one_line_are_both_told() -> None:
    assert len(problems_of("wheels: [{size: a, colour: b}, {size: c, colour: d}]\n")) == 4


def test_a_problem_of_the_whole_file_is_told_on_its_first_line() -> None:
    assert problems_of("\nweight: 101.0\n") == ["b.yaml:2: nobody can carry it"]


def test_a_key_that_is_no_text_is_a_problem() -> None:
    assert problems_of("name: x\n7: seven\n") == ["b.yaml:2: 7: keys should be strings, not 7"]


def test_a_long_value_is_cut_in_the_message() -> None:
    (problem,) = problems_of(f"weight: {'x' * 5000}\n")
    assert len(problem) < 150


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: a\nfast: true\nname: b\n", "b.yaml:3: 'name' is given twice"),
        ("wheels:\n  - size: 1\n    size: 2\n", "b.yaml:3: 'size' is given twice"),
        ("- a\n- b\n", "b.yaml:1: the file must be a mapping (key: value), not a list"),
        ("just text\n", "b.yaml:1: the file must be a mapping (key: value), not text"),
        ("7\n", "b.yaml:1: the file must be a mapping (key: value), not a number"),
        ("name: a\n--- \nname: b\n", "b.yaml:2: but found another document"),
        ("name: 'open\nfast: true\n", "b.yaml:3: found unexpected end of stream"),
        ("name: x\n\tfast: true\n", "b.yaml:2: indent with spaces, not with tabs ("),
        ("name: a\nextra: {{ issue.title }}\n", "b.yaml:2: text with {{ must be in quotes, or below a | on lines of"),
        ("name: a\nextra: {{ title }} now\n", "b.yaml:2: text with {{ must be in quotes, or below a | on lines of"),
        ("name: a\nextra: {% if x %}\n", "b.yaml:2: text with {% must be in quotes, or below a | on lines of"),
        ("name: Fix: the rest\n", "b.yaml:1: text with a colon must be in quotes, or below a | on lines of its own"),
        ("name: 'it's'\n", "b.yaml:1: this does not continue the lines above: check the indentation and the quotes ("),
        ("extra:\n  - a\n b: c\n", "b.yaml:3: this does not continue the lines above: check the indentation and"),
        ("name: @me\n", "b.yaml:1: put the text in quotes ("),
        ("name: a\nextra: *nobody\n", "b.yaml:2: found undefined alias 'nobody'"),
        ("extra: &a\n  b: *a\n", "b.yaml:1: an alias that contains itself"),
        ("extra:\n  a: &a [*a]\n", "b.yaml:2: an alias that contains itself"),
        ("name: a\nextra: {x: a\0b}\n", "b.yaml:2: a character that YAML does not allow: '\\x00'"),
        ("name: !!python/object/apply:os.system [id]\n", "b.yaml:1: the tag "),
        ("name: !!set {a}\n", "b.yaml:1: the tag "),
        ("weight: !!float ''\n", "b.yaml: a value that cannot be read: "),
        ("weight: !!int one\n", "b.yaml: a value that cannot be read: "),
        ("fast: !!bool maybe\n", "b.yaml: a value that cannot be read: "),
        (f"weight: {'9' * 5000}\n", "b.yaml: a value that cannot be read: "),
        ("extra: {? [a, b] : c}\n", "b.yaml:1: found unhashable key"),
        (f"extra: {'[' * 5000}\n", "b.yaml: nested too deeply"),
    ],
)
def test_what_is_no_use_as_configuration_is_one_clear_problem(text: str, problem: str) -> None:
    (found,) = problems_of(text)
    assert found.startswith(problem)


def test_a_few_lines_of_aliases_that_stand_for_billions_are_refused_at_once() -> None:
    lines = ["extra:", "  a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (problem,) = problems_of("\n".join(lines))
    assert "aliases stand for more than 50,000 values" in problem


@pytest.mark.parametrize(
    "secret",
    [
        "xoxb-" + "1234567890-abc",
        "xapp-" + "1-A0-secret",
        "ghp_" + "a" * 36,
        "github_pat_" + "a" * 30,
        "glpat-" + "abc",
        "sk-" + "ant-api03-" + "a" * 20,
        "AKIA" + "A" * 16,
        "-----BEGIN RSA " + "PRIVATE KEY-----",
    ],
)
@pytest.mark.parametrize("text", ["name: a\nextra:\n  token: {}\n", "name: a\nextra:\n  ? {}\n  : x\n"])
def test_a_secret_in_a_file_is_refused_and_not_repeated(secret: str, text: str) -> None:
    (problem,) = problems_of(text.format(secret))
    assert problem.startswith("b.yaml:3: this looks like a secret: put it in an environment variable and name it here")
    assert secret not in problem


@pytest.mark.parametrize("harmless", ["SLACK_BOT_TOKEN", "sk-short", "risk-assessment", "ghp_x", "task-force-of-three"])
def test_a_harmless_word_is_not_taken_for_a_secret(harmless: str) -> None:
    assert parse_yaml(f"name: {harmless}\n", Bicycle, "b.yaml").name == harmless


def test_a_file_that_cannot_be_read_is_a_problem_not_a_traceback(tmp_path: Path) -> None:
    missing, folder, latin, big = (tmp_path / name for name in ("missing", "folder", "latin", "big"))
    folder.mkdir()
    latin.write_bytes(b"name: a\nextra: {b: caf\xe9}\n")
    big.write_bytes(b"#" * (MAX_BYTES + 1))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, what in (
        (missing, ": No such file or directory"),
        (folder, ": not a file"),
        (pipe, ": not a file"),
        (latin, ":2: not UTF-8 text (invalid continuation byte)"),
        (big, ": larger than 1,000,000 bytes"),
    ):
        with pytest.raises(YamlProblem) as caught:
            load_yaml(path, Bicycle)
        assert caught.value.problems == [f"{path}{what}"]


def test_a_question_mark_ends_no_text_inside_of_brackets() -> None:
    text = "extra: {ask: [is it ok?, why? not, b], really?: 1}"
    assert parse_yaml(text, Bicycle, "b.yaml").extra == {"ask": ["is it ok?", "why? not", "b"], "really?": 1}
    assert parse_yaml("extra: {? key : value}", Bicycle, "b.yaml").extra == {"key": "value"}
    assert problems_of("extra: [what?")


def test_the_same_text_is_parsed_once_and_each_caller_has_values_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "name: parsed once\nextra: {tags: [a]}\n"
    first = parse_yaml(text, Bicycle, "b.yaml")
    first.extra["tags"].append("b")
    monkeypatch.setattr("kingdom.base.yamlfile._Loader", None)
    assert parse_yaml(text, Bicycle, "c.yaml").extra == {"tags": ["a"]}
