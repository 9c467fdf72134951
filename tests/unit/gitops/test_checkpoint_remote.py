"""The remote of checkpoints: which addresses are taken."""

from __future__ import annotations

import pytest

from kingdom.gitops import InvalidInput
from kingdom.gitops.checkpoint_remote import CheckpointRemote
from kingdom.gitops.settings import GitSettings


def test_it_is_origin_or_a_url_with_a_place_for_the_name() -> None:
    assert GitSettings.read({}).checkpoint_remote is None
    for address in ("origin", "ssh://git@host/checkpoints/{name}.git", "git@host:checkpoints/{name}.git"):
        settings = GitSettings.read({"checkpoint_remote": address})
        assert settings.checkpoint_remote == CheckpointRemote(address)


@pytest.mark.parametrize("address", ["upstream", "https://host/all.git", "-u/{name}", "ext::sh -c {name}"])
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput):
        CheckpointRemote(address)
