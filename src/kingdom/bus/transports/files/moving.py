"""Carrying out moves: renames, and for documents with a status of their own, new files that say the new status.

A rename cannot change what is in a file. A document whose ``status`` must agree with its directory is therefore written
anew: all new files of a line are made durable under temporary names, then renamed into place, then the old ones are
removed. Whoever looks in between sees two copies, and each agrees with its directory.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from kingdom.bus.errors import InvalidEnvelope
from kingdom.bus.transports.files.document import encode_form, parse
from kingdom.bus.transports.files.marks import mark, unmark
from kingdom.bus.transports.files.paths import SUFFIX
from kingdom.bus.transports.files.reading import read_bytes
from kingdom.bus.transports.files.temporaries import temporary_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.bus.delivery import Status
    from kingdom.bus.transports.files.lines import Move
    from kingdom.bus.transports.files.paths import StreamPaths
    from kingdom.bus.transports.files.syncing import Syncer


class _Rewrite(NamedTuple):
    """A document on its way: where it lies, its new file, where that goes."""

    move: Move
    source: str
    temporary: str
    target: str
    data: bytes


class Mover:
    """Moves the files of one stream. Used under the stream's lock only."""

    def __init__(self, paths: StreamPaths, syncer: Syncer) -> None:
        self._paths = paths
        self._syncer = syncer

    def carry_out(self, moves: Sequence[Move]) -> list[Move]:
        """Do all of them, or none and raise ``OSError``; return those whose file is nowhere to be found.

        May be repeated: what is done already stays as it is.
        """
        if self._paths.form is None:
            return self._rename_all(moves)
        rewritten = [move for move in moves if self._says_another_status(move)]
        missing = self._rewrite_all(rewritten)
        again = set(map(id, rewritten))
        return missing + self._rename_all([move for move in moves if id(move) not in again])

    def restate(self, path: str, status: Status) -> None:
        """Let the document in a file say the status of its directory, if it does not."""
        form, word = self._paths.form, self._paths.word(status)
        if form is None or form.status is None or word is None:
            return
        document = parse(read_bytes(path))
        if document.get(form.status) != word:
            temporary = f"{self._paths.home}{temporary_prefix()}{os.path.basename(path)}"
            self._syncer.write(self._paths.home, [(temporary, encode_form(document, (form.status, word)))])
            os.rename(temporary, path)

    # ── renames ───────────────────────────────────────────────────────────────────────────────────────────────

    def _rename_all(self, moves: Sequence[Move]) -> list[Move]:
        moved: list[Move] = []
        missing: list[Move] = []
        try:
            for move in moves:
                (moved if self._rename(move) else missing).append(move)
        except OSError:
            for move in reversed(moved):
                source, target = self._source(move), self._target(move)
                if target is not None and source != target:
                    os.rename(target, source)
            raise
        return missing

    def _rename(self, move: Move) -> bool:
        source, target = self._source(move), self._target(move)
        if source == target:
            return True
        try:
            if target is None:
                os.unlink(source)
                return True
            if move.target == "DONE":
                mark(source, move.at, move.attempts, move.error_code, move.error_message)
            elif move.source == "DONE":
                unmark(source)
            self._give_reason(move, target)
            os.rename(source, target)
        except FileNotFoundError:
            return self._seek(move)
        self._drop_reason(move, source)
        return True

    def _seek(self, move: Move) -> bool:
        """Move a file that is not where it should be from wherever it is; False when it is nowhere."""
        self._paths.make()
        target = self._target(move)
        if target is None:
            return True
        if os.path.exists(target):
            return True
        for path in self._places(move):
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, target)
                return True
        return False

    # ── documents written anew ────────────────────────────────────────────────────────────────────────────────

    def _says_another_status(self, move: Move) -> bool:
        if move.target == "GONE" or move.source not in self._paths.states:
            return False  # removed, or published: what is published says its status already
        word = self._paths.word(move.target, move.outcome)
        return word is not None and self._source(move) != self._target(move)

    def _rewrite_all(self, moves: Sequence[Move]) -> list[Move]:
        prefix, missing = temporary_prefix(), []
        rewrites: list[_Rewrite] = []
        for move in moves:
            rewrite = self._plan(move, prefix)
            if rewrite is not None:
                rewrites.append(rewrite)
            elif not os.path.exists(self._paths.file(_status(move), move.event_id)):
                missing.append(move)
        placed: list[_Rewrite] = []
        try:
            if rewrites:
                self._syncer.write(self._paths.home, [(item.temporary, item.data) for item in rewrites])
            for item in rewrites:
                if item.move.target == "DONE":
                    facts = item.move
                    mark(item.temporary, facts.at, facts.attempts, facts.error_code, facts.error_message)
                os.rename(item.temporary, item.target)
                placed.append(item)
        except OSError:
            for item in rewrites:
                with contextlib.suppress(OSError):
                    os.unlink(item.target if item in placed else item.temporary)
            raise
        for item in rewrites:
            if item.source != item.target:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(item.source)
            self._drop_reason(item.move, item.source)
        return missing

    def _plan(self, move: Move, prefix: str) -> _Rewrite | None:
        """The new file of a document; None when there is no old one to make it from."""
        form = self._paths.form
        word = self._paths.word(_status(move), move.outcome)
        assert form is not None
        assert form.status is not None
        assert word is not None
        target = self._paths.file(_status(move), move.event_id)
        for path in self._places(move):
            if path == target:
                continue
            try:
                data = read_bytes(path)
            except FileNotFoundError:
                continue
            except InvalidEnvelope:
                data = b""
            with contextlib.suppress(InvalidEnvelope):  # whoever reads it next sets it aside
                data = encode_form(parse(data), (form.status, word))
            return _Rewrite(move, path, f"{self._paths.home}{prefix}{move.event_id}{SUFFIX}", target, data)
        return None

    # ── where things are ──────────────────────────────────────────────────────────────────────────────────────

    def _source(self, move: Move) -> str:
        if move.source in self._paths.states:
            return self._paths.file(move.source, move.event_id)
        return f"{self._paths.home}{move.source}{SUFFIX}"

    def _target(self, move: Move) -> str | None:
        return None if move.target == "GONE" else self._paths.file(move.target, move.event_id)

    def _places(self, move: Move) -> list[str]:
        """Where the file of a move may be: where it should, then anywhere."""
        elsewhere = (self._paths.file(status, move.event_id) for status in self._paths.states)
        return list(dict.fromkeys([self._source(move), *elsewhere]))

    def _give_reason(self, move: Move, target: str) -> None:
        """The dead that lie among the invalid have, as those have, their reason beside them."""
        if move.target == "DEAD" and self._paths.states["DEAD"] == self._paths.invalid:
            with contextlib.suppress(OSError), open(f"{target}.reason", "w", encoding="utf-8") as file:
                file.write(f"{move.error_message or move.error_code or 'rejected'}\n")

    def _drop_reason(self, move: Move, source: str) -> None:
        if move.source == "DEAD" and self._paths.states["DEAD"] == self._paths.invalid:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{source}.reason")


def _status(move: Move) -> Status:
    assert move.target != "GONE"
    return move.target
