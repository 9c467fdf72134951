"""The result contract: the JSON file in which an agent reports the result of its task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kingdom.agents.errors import InvalidResult
from kingdom.base.files import open_untrusted
from kingdom.base.forms import problem_text
from kingdom.base.preload import preload

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 50
_MODEL: Final = "kingdom.agents.result_model"


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema of a result file."""
    from kingdom.agents.result_model import RawResult

    return RawResult.model_json_schema()


def check_result(document: Any) -> dict[str, Any]:
    """Check a result document and fill in missing fields. Raises :class:`InvalidResult`."""
    from pydantic import ValidationError

    from kingdom.agents.result_model import RawResult

    if not isinstance(document, dict):
        raise InvalidResult(f"the result must be a JSON object, not {type(document).__name__}")
    _check_text(document, "", 0)
    try:
        return RawResult.model_validate(document).document()
    except ValidationError as error:
        raise InvalidResult("; ".join(map(_describe, error.errors()[:5]))) from None


def preload_model() -> None:
    """Load what :func:`check_result` needs in a thread, while an agent works. It takes a while."""
    preload(_MODEL)


def read_result(path: Path) -> dict[str, Any] | str | None:
    """Read a result file. Returns the checked document, the problem as text, or None when there is no file."""
    try:
        data = _read(path)
    except FileNotFoundError:
        return None
    except (OSError, InvalidResult) as error:
        return f"the result file {path} cannot be used: {error}"
    try:
        return check_result(json.loads(data.decode()))
    except UnicodeDecodeError as error:
        return f"the result file {path} is not UTF-8 text ({error.reason} at byte {error.start})"
    except RecursionError:
        return f"the result file {path} is nested too deep"
    except InvalidResult as error:
        return f"the result file {path} does not follow the contract: {error}"
    except ValueError as error:
        why = "it is empty" if not data.strip() else str(error)
        return f"the result file {path} is not JSON: {why}"


def instructions(result_path: Path | str) -> str:
    """Return the instructions for an agent how to report its result. Part of every prompt."""
    return f"""\
When you are done, write one JSON object to the file {result_path} (its path is also in $KINGDOM_RESULT_PATH).
Write it even when you could not do the task. Nothing else you print is read by a program.

Fields:
- "status" (required): "success" when the task is done and checked; "failed" when you could not do it; "needs_human"
  when you cannot go on without an answer from a person; "skipped" when there was nothing to do.
- "summary": what you did and found, in a few sentences, for the person who asked.
- "error": for "failed", why.
- "question": for "needs_human", an object {{"text": "...", "choices": ["...", "..."], "default": "..."}}; choices and
  default may be left out. Ask one clear question, then stop: you will go on in this session when it is answered.
- "memory_updates": a list of short facts worth remembering for later tasks, or [].
- "links": a list of URLs that belong to the result, or [].

Example: {{"status": "success", "summary": "Fixed the parser and added a test.", "memory_updates": [], "links": []}}
"""


def _read(path: Path) -> bytes:
    """Read a regular file of limited size."""
    with open_untrusted(path) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InvalidResult(f"it is larger than {MAX_BYTES} bytes")
    if b"\0" in data:
        raise InvalidResult(f"it has a NUL byte (at {data.index(0)}); it must be JSON text")
    return data


def _check_text(value: Any, where: str, depth: int) -> None:
    """Refuse NUL and lone surrogates, which databases, file names and terminals do not accept."""
    if depth > MAX_DEPTH:
        raise InvalidResult("it is nested too deep")
    if isinstance(value, str):
        if "\0" in value:
            raise InvalidResult(f"{where or 'a name'}: has a NUL character")
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise InvalidResult(f"{where or 'a name'}: has half of a surrogate pair, which is not a character")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, "", depth)
            _check_text(item, f"{where}.{key}" if where else str(key), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_text(item, f"{where}[{index}]", depth + 1)


def _describe(error: Any) -> str:
    where = ".".join(map(str, error["loc"])) or "the result"
    return f"{where}: {problem_text(error)}"
