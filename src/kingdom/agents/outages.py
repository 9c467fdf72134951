"""Recognise errors of a model service that pass by themselves, or when a person acts: they are not the work's failure.

An overloaded model, a network that is away, an account without credit, a refused key: each has a sentence of its own.
"""

from __future__ import annotations

import re
from typing import Final

_OVERLOADED_STATUSES: Final = (500, 502, 503, 504, 520, 522, 524, 529)
_OVERLOADED: Final = re.compile(
    r"overloaded|high demand|service unavailable|bad gateway|gateway time-?out|internal server error"
    r"|temporarily unavailable",
    re.IGNORECASE,
)
_NO_CREDIT: Final = re.compile(
    r"credit balance is too low|insufficient[_ ]quota|exceeded your current quota|billing|payment required",
    re.IGNORECASE,
)
_REFUSED_KEY: Final = re.compile(
    r"invalid (?:api )?key|incorrect api key|authentication_error|authentication failed|401 unauthorized"
    r"|please run /login|not logged in|oauth token (?:has )?(?:expired|been revoked)|token (?:has )?expired",
    re.IGNORECASE,
)
_NO_NETWORK: Final = re.compile(
    r"connection (?:error|refused|reset|closed)|econnre(?:fused|set)|enotfound|eai_again|etimedout"
    r"|could ?n[o']t resolve|failed to connect|unable to connect|network is unreachable|error sending request"
    r"|stream disconnected|dns error|fetch failed|request timed out|socket hang up",
    re.IGNORECASE,
)
_STATUS: Final = re.compile(r"(?:status|error|API Error:?)\s*:?\s*\(?([45]\d\d)\b", re.IGNORECASE)
_MAX_CHARS: Final = 2000


def outage_of(engine: str, status: int | None, message: str) -> str | None:
    """Return what is wrong with the service of an engine, in words; None when the error is another one.

    ``status`` is the HTTP status of the answer, if it is known.
    """
    text = message[:_MAX_CHARS]
    if status is None and (found := _STATUS.search(text)):
        status = int(found.group(1))
    said = f"{status}: {text.strip()[:200]}" if status else text.strip()[:200]
    if _NO_CREDIT.search(text) or status == 402:
        return f"the account of {engine} has no credit left ({said}): add credit, or set another key"
    if status in (401, 403) or _REFUSED_KEY.search(text):
        return f"{engine} refuses its key or login ({said}): correct it, then restart the court"
    if status in _OVERLOADED_STATUSES or _OVERLOADED.search(text):
        return f"the model service of {engine} is overloaded or away ({said})"
    if _NO_NETWORK.search(text):
        return f"the model service of {engine} cannot be reached ({said})"
    return None
