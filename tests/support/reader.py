"""Doing what a page of the documentation says."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
import shlex
from typing import Any, Self

import pytest

from kingdom.cli.app import run
from tests.support.pages import Block, name_of, same

DATABASE = "://localhost/shop"  # what the pages call the database; a test has one of its own instead
_URL = re.compile(rf"(postgresql(?:\+\w+)?){re.escape(DATABASE)}(\?)?")


class Reader:
    """Does what a page says, block by block, in a directory of its own."""

    def __init__(self, environment: pytest.MonkeyPatch, database: str) -> None:
        self._environment = environment
        environment.delenv("KINGDOM_SANDBOX")  # a reader has none
        self._database = database
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._runner = asyncio.Runner()
        self._printed = io.StringIO()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def follow(self, block: Block) -> None:
        if block.mark == "prints":
            printed = self._printed.getvalue()
            assert same(block.text, printed), f"{block.place}: printed was\n{printed}"
            self._printed = io.StringIO()
        elif block.mark == "run" and block.language == "python":
            with contextlib.redirect_stdout(self._printed):
                self._execute(block)
        elif block.mark == "run":
            assert block.language == "console", f"{block.place}: only python and console blocks can be run"
            for command, output in block.commands:
                self._command(block, command, "\n".join(output))

    def _execute(self, block: Block) -> None:
        source = "\n" * (block.line - 1) + self._with_database(block.text)  # line numbers as in the page
        code = compile(source, name_of(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            self._runner.run(eval(code, self._names))
        else:
            exec(code, self._names)

    def _command(self, block: Block, command: str, expected: str) -> None:
        words = shlex.split(self._with_database(command))
        if words[0] == "export":
            self._environment.setenv(*words[1].split("=", 1))
            return
        assert words[0] == "kingdom", f"{block.place}: only kingdom commands can be run here, not {command}"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = run(words[1:])
        failed = expected.startswith("error:")
        assert code == (1 if failed else 0), f"{block.place}: {command}\n{printed.getvalue()}"
        assert same(expected, printed.getvalue()), f"{block.place}: {command} printed\n{printed.getvalue()}"

    def _with_database(self, text: str) -> str:
        rest = self._database.partition("://")[2]
        return _URL.sub(lambda match: f"{match[1]}://{rest}{'&' if match[2] else ''}", text)
