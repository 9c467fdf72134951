"""Convert exceptions to error responses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kingdom.agents.errors import AgentsError
from kingdom.base.forms import problem_text
from kingdom.base.yamlfile import YamlProblem
from kingdom.bus import BusError, InvalidEnvelope, InvalidName, InvalidOption
from kingdom.court.errors import CourtError
from kingdom.gitops import GitError, RepositoryRefused
from kingdom.web.envelope import ApiError
from kingdom.workflow.errors import WorkflowError

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

log = logging.getLogger("kingdom.web")

_UNPROCESSABLE: Final = 422
_STATUS_BY_CODE: Final = {
    "SYS_NOT_FOUND": 404,
    "NOT_FOUND": 404,
    "NO_GENERAL": 404,
    "NO_TOKEN": 404,
    "NO_SESSION": 404,
    "TOKEN_EXISTS": 409,
    "ALREADY_ENDED": 409,
    "NOT_ENDED": 409,
    "NO_QUESTION": 409,
    "ANSWERED": 409,
    "CANCELLED": 409,
    "NOT_LEADING": 409,
    "JOINED_MACHINE": 409,
    "WFL_NO_ANSWER": 504,
    "TPL_INVALID": _UNPROCESSABLE,
    "TPL_QUERY": _UNPROCESSABLE,
    "INVALID_ID": _UNPROCESSABLE,
    "INVALID_DOCUMENT": _UNPROCESSABLE,
    "INVALID_CONFIG": 500,
}
_CODE_PREFIXES: Final = ("GIT", "MCP", "TPL", "WFL", "MOD", "SYS")
_CODE_BY_STATUS: Final = {
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "TOO_LARGE",
}
_MAX_INPUT_CHARS: Final = 200


def add_error_handlers(app: FastAPI) -> None:
    """Return every error of an application in the envelope."""
    app.add_exception_handler(ApiError, _error_response)
    app.add_exception_handler(RequestValidationError, _error_response)
    app.add_exception_handler(HTTPException, _error_response)
    for kind in (WorkflowError, CourtError, BusError, GitError, AgentsError, YamlProblem):
        app.add_exception_handler(kind, _error_response)
    app.add_exception_handler(Exception, _error_response)


async def _error_response(request: Request, error: Exception) -> JSONResponse:
    problem = as_api_error(error)
    if problem.status >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error, exc_info=error)
    return JSONResponse(problem.body(), problem.status, problem.headers)


def as_api_error(error: Exception) -> ApiError:
    """Convert any exception to an :class:`ApiError` with the matching status and code."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        return ApiError(
            _UNPROCESSABLE,
            "SYS_INVALID",
            "the request is invalid; see details",
            _invalid_fields(error),
        )
    if isinstance(error, HTTPException):
        problem = ApiError(
            error.status_code, f"SYS_{_CODE_BY_STATUS.get(error.status_code, 'REFUSED')}", str(error.detail)
        )
        problem.headers.update(error.headers or {})
        return problem
    if isinstance(error, WorkflowError | CourtError | AgentsError | YamlProblem):
        status = _STATUS_BY_CODE.get(error.code, 409 if isinstance(error, WorkflowError) else _UNPROCESSABLE)
        return ApiError(status, _prefixed(error.code), str(error))
    if isinstance(error, RepositoryRefused):
        return ApiError(_UNPROCESSABLE, "GIT_REFUSED", str(error))
    if isinstance(error, GitError):
        return ApiError(409, "GIT_FAILED", str(error))
    if isinstance(error, InvalidEnvelope | InvalidName | InvalidOption):
        return ApiError(_UNPROCESSABLE, "SYS_INVALID", str(error))
    if isinstance(error, BusError):
        return ApiError(503, "SYS_STORE", str(error))
    return ApiError(500, "SYS_INTERNAL", "internal server error; see the server's log")


def _prefixed(code: str) -> str:
    return code if code.startswith(_CODE_PREFIXES) else f"SYS_{code}"


def _invalid_fields(error: RequestValidationError) -> list[dict[str, Any]]:
    return [
        {
            "where": ".".join(str(part) for part in one["loc"]),
            "what": problem_text(one),
            "given": repr(one.get("input"))[:_MAX_INPUT_CHARS],
        }
        for one in error.errors()
    ]
