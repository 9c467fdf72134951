"""An agent that writes whatever it likes into its worktree and its repository gets nothing run by our git."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.gitops import InvalidInput, RemoteFailed, WorktreeBroken, diff, log, merge, reset, verify
from kingdom.gitops.checkpoints import RecordedCheckpoint
from kingdom.gitops.clones import Clones
from kingdom.gitops.worktree import Worktree
from tests.support.repositories import Ground, Remote, on_disk, plain_git

pytestmark = pytest.mark.timeout(120)


class Scene:
    """A worktree with two files, and a program that leaves a canary behind when somebody runs it."""

    def __init__(self, folder: Path, remote: Remote, ground: Ground, tree: Worktree) -> None:
        self.folder, self.remote, self.ground, self.tree = folder, remote, ground, tree
        self.canary = folder / "canary"
        self.trap = folder / "trap"
        self.trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {shlex.quote(str(self.canary))}\ncat\n')
        self.trap.chmod(0o755)

    @property
    def repo(self) -> Path:
        return self.tree.clone.repo

    def set(self, *pairs: tuple[str, str], file: Path | None = None) -> None:
        for name, value in pairs:
            plain_git(self.folder, "config", "--file", str(file or self.repo / "config"), name, value)


def evil_settings(scene: Scene) -> list[tuple[str, str]]:
    trap = str(scene.trap)
    return [
        ("core.fsmonitor", trap),
        ("core.hooksPath", str(scene.folder / "hooks")),
        ("core.pager", trap),
        ("core.editor", trap),
        ("core.askPass", trap),
        ("core.sshCommand", trap),
        ("core.alternateRefsCommand", trap),
        ("credential.helper", trap),
        ("diff.external", trap),
        ("diff.evil.command", trap),
        ("diff.evil.textconv", trap),
        ("merge.evil.driver", trap),
        ("filter.evil.clean", trap),
        ("filter.evil.smudge", trap),
        ("filter.evil.required", "true"),
        ("gpg.program", trap),
        ("commit.gpgSign", "true"),
        ("alias.read-tree", f"!{trap}"),
        ("remote.origin.uploadpack", trap),
        ("remote.origin.vcs", "ext"),
        ("url.ext::" + trap + " .insteadOf", "/"),
        ("core.worktree", "/"),
    ]


def hooks(scene: Scene, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("post-checkout", "pre-commit", "commit-msg", "post-commit", "reference-transaction",
                 "post-index-change",
                 "pre-merge-commit", "post-merge", "post-rewrite", "pre-auto-gc", "fsmonitor-watchman"):  # fmt: skip
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {shlex.quote(str(scene.canary))}\n")
        (folder / name).chmod(0o755)


def attributes(scene: Scene) -> None:
    (scene.tree.path / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")


def config(scene: Scene) -> None:
    """Its configuration: everything in it that names a program."""
    attributes(scene)
    hooks(scene, scene.folder / "hooks")
    scene.set(*evil_settings(scene))


def filters(scene: Scene) -> None:
    """Filters of .gitattributes, set in the repository's configuration."""
    attributes(scene)
    scene.set(("filter.evil.clean", str(scene.trap)), ("filter.evil.smudge", str(scene.trap)))


def long_running_filter(scene: Scene) -> None:
    """A filter process."""
    attributes(scene)
    scene.set(("filter.evil.process", str(scene.trap)))


def fsmonitor(scene: Scene) -> None:
    """core.fsmonitor."""
    scene.set(("core.fsmonitor", str(scene.trap)))


def included(scene: Scene) -> None:
    """A configuration file that includes another."""
    attributes(scene)
    scene.set(("include.path", str(scene.folder / "more")))
    scene.set(*evil_settings(scene), file=scene.folder / "more")


def hook_files(scene: Scene) -> None:
    """Hooks in the repository's own folder."""
    hooks(scene, scene.repo / "hooks")


def worktree_config(scene: Scene) -> None:
    """Configuration of the worktree alone."""
    attributes(scene)
    scene.set(("extensions.worktreeConfig", "true"))
    scene.set(*evil_settings(scene)[:-1], ("core.bare", "false"), file=scene.tree.admin / "config.worktree")


def evil_repository(scene: Scene) -> Path:
    evil = scene.folder / "evil"
    plain_git(scene.folder, "clone", "--quiet", "--bare", str(scene.remote.folder), str(evil))
    hooks(scene, evil / "hooks")
    scene.set(*evil_settings(scene)[:-1], file=evil / "config")
    scene.set(("core.bare", "false"), file=evil / "config")
    return evil


def pointer(scene: Scene) -> None:
    """The .git file leads to another repository."""
    attributes(scene)
    (scene.tree.path / ".git").write_text(f"gitdir: {evil_repository(scene)}\n")


def directory(scene: Scene) -> None:
    """A repository of its own in place of the .git file."""
    attributes(scene)
    evil = evil_repository(scene)
    (scene.tree.path / ".git").unlink()
    evil.rename(scene.tree.path / ".git")


def commondir(scene: Scene) -> None:
    """The worktree's entry in the clone leads to another repository."""
    attributes(scene)
    (scene.tree.admin / "commondir").write_text(f"{evil_repository(scene)}\n")


def entry_is_a_link(scene: Scene) -> None:
    """The worktree's entry in the clone is itself a link to somewhere else."""
    elsewhere = scene.folder / "elsewhere"
    scene.tree.admin.rename(elsewhere)
    scene.tree.admin.symlink_to(elsewhere)
    attributes(scene)
    (elsewhere / "commondir").write_text(f"{evil_repository(scene)}\n")


def info_attributes(scene: Scene) -> None:
    """Attributes in the repository's info folder."""
    scene.set(*evil_settings(scene)[8:15])
    (scene.repo / "info").mkdir(exist_ok=True)
    (scene.repo / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")


def nested(scene: Scene) -> None:
    """A repository inside the worktree, tracked as if it were a submodule."""
    inner = scene.tree.path / "vendor"
    inner.mkdir()
    plain_git(inner, "init", "--quiet")
    (inner / "file").write_text("inner\n")
    plain_git(inner, "add", "file")
    plain_git(inner, "commit", "--quiet", "--message", "inner")
    plain_git(scene.tree.path, "-c", "advice.addEmbeddedRepo=false", "add", "vendor")
    plain_git(scene.tree.path, "commit", "--quiet", "--message", "with a gitlink")
    (inner / ".gitattributes").write_text("* filter=evil\n")
    (inner / "file").write_text("changed\n")
    hooks(scene, inner / ".git" / "hooks")
    scene.set(*evil_settings(scene)[:-1], file=inner / ".git" / "config")
    (scene.tree.path / ".gitmodules").write_text(
        f'[submodule "vendor"]\n\tpath = vendor\n\turl = ext::{scene.trap}\n\tignore = none\n'
    )


TRAPS: list[Callable[[Scene], None]] = [
    config, filters, long_running_filter, fsmonitor, included, hook_files, worktree_config, pointer, directory,
    commondir, entry_is_a_link, info_attributes, nested,
]  # fmt: skip


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    remote = Remote(tmp_path / "remote")
    remote.commit({"a.txt": "one\n", "dir/b.txt": "two\n"})
    remote.git("branch", "other")
    ground = Ground(tmp_path / "ground")
    return Scene(tmp_path, remote, ground, await ground.worktree(remote))


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
async def test_nothing_of_it_is_run_by_any_operation(trap: Callable[[Scene], None], scene: Scene) -> None:
    ground, tree, remote = scene.ground, scene.tree, scene.remote
    before = await ground.checkpoint(tree, "before")
    trap(scene)
    scene.canary.unlink(missing_ok=True)  # setting a trap may have sprung it
    (tree.path / "a.txt").write_text("changed by the agent\n")
    (tree.path / "new.txt").write_text("new\n")
    remote.commit({"a.txt": "one\nremote\n"})

    made = await ground.checkpoint(tree, "after")
    assert {"a.txt", "new.txt"} <= {
        file.path for file in await diff(tree.clone, before.commit, made.commit, patches=True)
    }
    assert await log(tree.clone, before.commit, made.commit)
    (tree.path / "a.txt").write_text("changed again\n")
    (tree.path / "dir" / "b.txt").unlink()
    done = await reset(tree, before.commit, expected_tree=before.tree, clock=ground.clock)
    assert done.rescues
    files = on_disk(tree.path)
    assert {name: text for name, text in files.items() if name in ("a.txt", "dir/b.txt", "new.txt")} == {
        "a.txt": "- one\n",
        "dir/b.txt": "- two\n",
    }
    ensured = await ground.clones.ensure(remote.url)
    other = await ground.worktrees.create(ensured.clone, "wf2", "app", "other")
    (other.path / "c.txt").write_text("three\n")
    side = await ground.checkpoint(other, "side")
    assert (await merge(tree, side.commit, clock=ground.clock)).clean
    assert await verify(tree.clone, [RecordedCheckpoint("wf", "after", made.commit, made.tree)], deep=True) == []
    await ground.worktrees.prune()
    await ground.worktrees.release("wf2", "app")
    await ground.worktrees.release("wf", "app", delete_branch=True)
    assert not scene.canary.exists(), scene.canary.read_text()


SPRUNG: list[tuple[Callable[[Scene], None], tuple[str, ...]]] = [
    (config, ("status",)),
    (filters, ("add", "--all")),
    (long_running_filter, ("add", "--all")),
    (fsmonitor, ("status",)),
    (included, ("add", "--all")),
    (hook_files, ("commit", "--allow-empty", "--message", "x")),
    (worktree_config, ("add", "--all")),
    (pointer, ("status",)),
    (directory, ("status",)),
    (commondir, ("status",)),
    (entry_is_a_link, ("status",)),
    (info_attributes, ("add", "--all")),
    (nested, ("status",)),
]


@pytest.mark.parametrize(
    ("trap", "command"), SPRUNG, ids=lambda value: value[0] if isinstance(value, tuple) else value.__name__
)
async def test_the_same_traps_do_work_on_a_git_that_is_called_plainly(
    trap: Callable[[Scene], None], command: tuple[str, ...], scene: Scene
) -> None:
    trap(scene)
    (scene.tree.path / "a.txt").write_text("changed by the agent\n")
    scene.canary.unlink(missing_ok=True)
    plain_git(scene.tree.path, *command, check=False)
    assert scene.canary.exists(), "a trap that never springs proves nothing"


async def test_settings_that_trap_others_are_taken_out_of_the_clone(scene: Scene) -> None:
    config(scene)
    await scene.ground.clones.ensure(scene.remote.url)
    text = (scene.repo / "config").read_text()
    assert str(scene.trap) not in text
    assert scene.remote.url in text


async def test_harmless_settings_of_an_agent_stay(scene: Scene) -> None:
    plain_git(scene.tree.path, "config", "user.name", "An Agent")
    await scene.ground.clones.ensure(scene.remote.url)
    assert plain_git(scene.tree.path, "config", "user.name") == "An Agent"


async def test_our_callers_environment_and_the_users_configuration_run_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = str(scene.trap)
    attributes(scene)
    hooks(scene, scene.folder / "hooks")
    scene.set(*evil_settings(scene), file=scene.folder / ".gitconfig")
    for name in ("GIT_SSH_COMMAND", "GIT_SSH", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_EDITOR", "GIT_ASKPASS", "PAGER",
                 "GIT_PROXY_COMMAND"):  # fmt: skip
        monkeypatch.setenv(name, trap)
    monkeypatch.setenv("HOME", str(scene.folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(scene.folder))
    monkeypatch.setenv("GIT_DIR", str(evil_repository(scene)))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", trap)
    scene.canary.unlink(missing_ok=True)
    made = await scene.ground.checkpoint(scene.tree, "one")
    await diff(scene.tree.clone, scene.tree.base, made.commit, patches=True)
    await reset(scene.tree, clock=scene.ground.clock)
    await scene.ground.clones.ensure(scene.remote.url)
    assert not scene.canary.exists(), scene.canary.read_text()


async def test_a_worktree_that_became_a_link_is_not_followed(scene: Scene) -> None:
    precious = scene.folder / "precious"
    precious.mkdir()
    (precious / "letter.txt").write_text("keep me\n")
    tree = scene.tree
    tree.path.rename(scene.folder / "moved")
    tree.path.symlink_to(precious)
    for call in (
        lambda: scene.ground.checkpoint(tree, "one"),
        lambda: reset(tree, clock=scene.ground.clock),
        lambda: merge(tree, tree.base),
    ):
        with pytest.raises(WorktreeBroken, match="a link to somewhere else"):
            await call()
    await scene.ground.worktrees.release("wf", "app")
    assert (precious / "letter.txt").read_text() == "keep me\n"
    assert not tree.path.is_symlink()


async def test_a_folder_that_became_a_link_inside_is_a_link_in_the_checkpoint(scene: Scene) -> None:
    precious = scene.folder / "precious"
    precious.mkdir()
    (precious / "b.txt").write_text("keep me\n")
    tree = scene.tree
    (tree.path / "dir" / "b.txt").unlink()
    (tree.path / "dir").rmdir()
    (tree.path / "dir").symlink_to(precious)
    made = await scene.ground.checkpoint(tree, "one")
    assert plain_git(tree.clone.repo, "ls-tree", "-r", "--name-only", made.commit).split() == ["a.txt", "dir"]
    await reset(tree, clock=scene.ground.clock)
    assert (precious / "b.txt").read_text() == "keep me\n"
    assert (tree.path / "dir" / "b.txt").read_text() == "two\n"


async def test_flags_in_the_agents_index_hide_no_change(scene: Scene) -> None:
    tree = scene.tree
    plain_git(tree.path, "update-index", "--assume-unchanged", "a.txt")
    plain_git(tree.path, "update-index", "--skip-worktree", "dir/b.txt")
    (tree.path / "a.txt").write_text("hidden\n")
    (tree.path / "dir" / "b.txt").write_text("hidden\n")
    made = await scene.ground.checkpoint(tree, "one")
    assert [file.path for file in await diff(tree.clone, tree.base, made.commit)] == ["a.txt", "dir/b.txt"]


async def test_replaced_objects_are_not_believed(scene: Scene) -> None:
    tree = scene.tree
    one = await scene.ground.checkpoint(tree, "one")
    (tree.path / "a.txt").write_text("two\n")
    two = await scene.ground.checkpoint(tree, "two")
    plain_git(tree.path, "replace", one.commit, two.commit)
    await reset(tree, one.commit, expected_tree=one.tree, clock=scene.ground.clock)
    assert (tree.path / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("url", ["ext::sh -c 'touch {canary}'", "--upload-pack=touch {canary}"])
async def test_a_url_never_runs_a_program(url: str, scene: Scene) -> None:
    with pytest.raises(InvalidInput):
        await scene.ground.clones.ensure(url.format(canary=scene.canary))
    assert not scene.canary.exists()


async def test_local_paths_stay_closed_where_they_are_not_allowed(scene: Scene, tmp_path: Path) -> None:
    strict = Clones(scene.ground.clones.git, tmp_path / "strict")
    with pytest.raises(InvalidInput, match="allow_local"):
        await strict.ensure(scene.remote.url)
    assert not (tmp_path / "strict").exists()


async def test_a_repository_that_asks_for_a_password_fails_at_once(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "ground")
    with pytest.raises(RemoteFailed, match="cannot be reached"):
        await ground.clones.ensure("https://127.0.0.1:9/x.git")
