"""The page of internal events is the one the catalog gives."""

from __future__ import annotations

import errno
import os

import pytest

from kingdom.journal import CATALOG
from kingdom.journal.errors import unavailable
from tests.support.command import script
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "internal-events.md"


def test_the_page_is_the_one_the_catalog_gives() -> None:
    done = script(ROOT / "scripts" / "journal-reference", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CATALOG)
def test_the_page_has_a_row_for_each_type_with_its_fields(name: str) -> None:
    (row,) = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| `{name}` |")]
    assert [field.key for field in CATALOG[name].fields if f"`{field.key}` (" not in row] == []


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EROFS, "mount it writable"),
        (errno.ENOSPC, "make room"),
        (errno.EISDIR, "move it away"),
        (errno.ENOENT, "the directory has to exist"),
        (errno.EACCES, "change its owner or mode"),
    ],
)
def test_an_error_says_what_failed_where_why_and_what_to_do(code: int, advice: str) -> None:
    error = unavailable(OSError(code, os.strerror(code)), "write to", "/etc/events.log")
    assert str(error).startswith(f"cannot write to /etc/events.log: {os.strerror(code)}; ")
    assert advice in str(error)
    assert error.errno == code
    assert unavailable(error, "read", "elsewhere") is error
