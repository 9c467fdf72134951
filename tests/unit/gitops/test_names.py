"""What may become a ref, a path or an argument of git."""

from __future__ import annotations

import pytest

from kingdom.gitops import (
    CheckpointCommit,
    CheckpointMark,
    CloneOptions,
    CommitAuthor,
    InvalidInput,
    RecordedCheckpoint,
)
from kingdom.gitops.names import (
    check_hash,
    check_id,
    check_ref,
    check_url,
    checkpoint_ref,
    hide_password,
    pending_ref,
    rescue_ref,
)

BAD_IDS = [
    "", ".", "..", "a..b", "../x", "a/b", "a\\b", "-x", "--upload-pack=x", ".hidden", "x.lock", "x.", "a b", "a\nb",
    "a\0b", "é", "x" * 101, "a@{b", "a:b", "a~1", "a^", "a?", "a*", "a[",
]  # fmt: skip


@pytest.mark.parametrize("value", BAD_IDS)
def test_an_id_that_could_leave_its_place_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput):
        check_id("workflow", value)
    for ref in (checkpoint_ref, pending_ref, rescue_ref):
        with pytest.raises(InvalidInput):
            ref("wf", value)
        with pytest.raises(InvalidInput):
            ref(value, "x")
    with pytest.raises(InvalidInput):
        CheckpointMark("wf", value, "work")


@pytest.mark.parametrize("value", ["wf-1", "01J8ZQ", "a", "_x", "A.b+c-d_e", "x" * 100])
def test_ordinary_ids_pass(value: str) -> None:
    assert check_id("workflow", value) == value


def test_an_id_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidInput, match="workflow 7"):
        check_id("workflow", 7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    ["", "-x", "--output=/tmp/x", "a..b", "a b", "a\tb", "a\x7f", "a~1", "a^{tree}", "a:b", "@{-1}", "@", "a//b", "/a",
     "a/", "a.", "a/.b", "a.lock/b", "a.lock", "a\\b", "a*", "\udc80"],
)  # fmt: skip
def test_a_branch_name_that_git_would_read_otherwise_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput):
        check_ref("base", value)


@pytest.mark.parametrize("value", ["main", "feature/x", "release-1.2", "기능/한국어", "a@b", "v1.0+build"])
def test_branch_names_of_people_pass(value: str) -> None:
    assert check_ref("base", value) == value


@pytest.mark.parametrize("value", ["", "HEAD", "a" * 39, "A" * 40, "g" * 40, "a" * 40 + "\n"])
def test_only_a_full_hash_is_a_hash(value: str) -> None:
    with pytest.raises(InvalidInput):
        check_hash("commit", value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "-oProxyCommand=x",
        "--upload-pack=x",
        "ext::sh -c touch% x",
        "ext::sh",
        "fd::17",
        "http://example.com/x.git",
        "git://example.com/x.git",
        "ftp://example.com/x.git",
        "ssh://-oProxyCommand=x/y",
        "ssh://user@-oProxyCommand=x/y",
        "-u@host:x",
        "git@-oProxyCommand=x:y",
        "git@host:-x",
        "git@host://x",
        "ssh://host/-x",
        "https://host",
        "https://host/",
        "https://host:port/x",
        "https://user:secret@host/x.git",
        "https://ho st/x.git",
        "https://host/x y.git",
        "https://host/x\n.git",
        "https://[::1/x",
        "relative/path",
        "C:\\repo",
        "/srv/x.git",
        "file:///srv/x.git",
    ],
)
def test_a_url_that_could_run_or_read_something_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "protocol"),
    [
        ("https://github.com/a/b.git", "https"),
        ("https://user@host:8443/a/b", "https"),
        ("ssh://git@host:2222/a/b.git", "ssh"),
        ("git@github.com:a/b.git", "ssh"),
        ("git@host:/absolute/b.git", "ssh"),
        ("https://[::1]/a", "https"),
    ],
)
def test_urls_of_remote_repositories_pass(url: str, protocol: str) -> None:
    assert check_url(url).protocol == protocol


def test_local_repositories_need_the_operators_word() -> None:
    for url in ("/srv/a b/x.git", "file:///srv/x.git"):
        assert check_url(url, allow_local=True).protocol == "file"
    for url in ("file://host/x", "/srv/../etc", "file:x", "/srv/a\nb"):
        with pytest.raises(InvalidInput):
            check_url(url, allow_local=True)


def test_folders_of_clones_are_readable_and_differ() -> None:
    one = check_url("https://github.com/a/repo.git").key
    two = check_url("https://github.com/b/repo.git").key
    odd = check_url("git@host:x/--..%2f").key
    assert one.startswith("repo-")
    assert one != two
    assert check_id("clone", odd) == odd


def test_a_password_is_never_shown() -> None:
    assert hide_password("https://me:secret@host/x") == "https://me:***@host/x"


@pytest.mark.parametrize("value", ["blob:none;x", "sparse:oid=main", "--x", ""])
def test_a_partial_clone_takes_known_filters_only(value: str) -> None:
    with pytest.raises(InvalidInput):
        CloneOptions(partial=value)


def test_other_values_are_checked_too() -> None:
    with pytest.raises(InvalidInput, match="depth 0"):
        CloneOptions(depth=0)
    with pytest.raises(InvalidInput, match="attempt 0"):
        CheckpointMark("wf", "cp", "work", 0)
    with pytest.raises(InvalidInput, match="author"):
        CommitAuthor("Name\nKingdom-Work: forged")
    with pytest.raises(InvalidInput, match="tree"):
        RecordedCheckpoint("wf", "cp", "a" * 40, "x")


def test_a_checkpoint_commit_goes_into_a_store_and_back() -> None:
    made = CheckpointCommit("app", "a" * 40, "b" * 40, "c" * 40)
    assert CheckpointCommit.from_dict(made.to_dict()) == made
    with pytest.raises(InvalidInput):
        CheckpointCommit.from_dict({**made.to_dict(), "commit": "--output=x"})


def test_a_token_in_the_place_of_a_user_name_is_refused_and_not_shown() -> None:
    token = "ghp_0123456789abcdefghij0123456789abcdef"
    with pytest.raises(InvalidInput, match=r"name its variable in git\.credentials") as caught:
        check_url(f"https://{token}@github.com/acme/app")
    assert token not in str(caught.value)
