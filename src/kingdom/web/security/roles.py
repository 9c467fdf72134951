"""Roles of people, and the role that each operation needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from kingdom.web.envelope import ApiError

Role: TypeAlias = Literal["look", "answer", "operate", "own"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""All roles, the weakest first. Each may do what those before it may."""
ROLE_MEANINGS: Final[dict[Role, str]] = {
    "look": "see everything, change nothing",
    "answer": "also answer questions",
    "operate": "also emit events, run and change workflows, retry, cancel, acknowledge and mute",
    "own": "also install generals, register MCP servers, and give out and revoke tokens",
}
OWNER_NAME: Final = "owner"
"""The name of the person who has the home's own token."""
ACCOUNT_PREFIX: Final = "oidc-"
"""Begins the key of every account of a provider. Keys of tokens are hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who sends a request."""

    name: str
    role: Role
    key: str = ""
    """Identifies the person's token or account; empty for the home's own token."""
    session: str = field(default="", compare=False)
    """The id of the browser session; empty for a request with a token."""

    @property
    def is_owner(self) -> bool:
        """Whether it is the home's own token."""
        return not self.key

    def may(self, operation: str) -> bool:
        """Return whether the person's role allows an operation of the API."""
        return allows(self.role, role_of(operation))


OWNER: Final = Person(OWNER_NAME, "own")

# Operations that change something. Those with GET need `look`.
OPERATION_ROLES: Final[dict[str, Role]] = {
    # They store nothing that others see, or concern the person alone.
    "logOut": "look",
    "endSession": "look",
    "convertTemplate": "look",
    "answerQuestion": "answer",
    "answerWorkflow": "answer",
    "acknowledgeInbox": "operate",
    "muteInbox": "operate",
    "unmuteInbox": "operate",
    "injectEvent": "operate",
    "cancelTask": "operate",
    "retryTask": "operate",
    "resendMessage": "operate",
    "requeueDeadLetters": "operate",
    "enableGeneral": "operate",
    "disableGeneral": "operate",
    "createGit": "operate",
    "deleteGit": "operate",
    "createTemplate": "operate",
    "createTemplateFromYaml": "operate",
    "createTemplateFromWorkflow": "operate",
    "updateTemplate": "operate",
    "updateTemplateFromYaml": "operate",
    "deleteTemplate": "operate",
    "createWorkflow": "operate",
    "startWorkflow": "operate",
    "pauseWorkflow": "operate",
    "resumeWorkflow": "operate",
    "followUpWorkflow": "operate",
    "cancelWorkflow": "operate",
    "deleteWorkflow": "operate",
    "forkWorkflow": "operate",
    "landWorkflow": "operate",
    "restoreWorkflowRescue": "operate",
    "modifyWorkflow": "operate",
    "changeWorkflowPlan": "operate",
    # They choose programs that run as the server's user, or who gets in.
    "installGeneral": "own",
    "registerMcpServer": "own",
    "unregisterMcpServer": "own",
    "createToken": "own",
    "changeTokenRole": "own",
    "revokeToken": "own",
}
UNRECORDED_OPERATIONS: Final = frozenset({"logOut", "convertTemplate"})
"""Operations with another method than GET that are not recorded as acts: they change nothing that others see."""


def allows(role: Role, needed: Role) -> bool:
    """Return whether a role includes another."""
    return ROLES.index(role) >= ROLES.index(needed)


def role_of(operation: str, method: str = "POST") -> Role:
    """Return the role that an operation needs. Raises ``KeyError`` for one that is not declared."""
    if method in ("GET", "HEAD"):
        return OPERATION_ROLES.get(operation, "look")
    return OPERATION_ROLES[operation]


def role_refusal(person: Person, needed: Role, granters: Sequence[str] = (OWNER_NAME,)) -> ApiError:
    """Return the error for an operation that needs another role. ``granters`` are those who have ``own``."""
    if person.key.startswith(ACCOUNT_PREFIX):
        way = "can give your account that role: web.oidc.roles in config/system.yaml"
    else:
        way = f"can give it to you: kingdom token role {person.name} {needed}"
    return ApiError(
        403,
        "SYS_ROLE",
        f"this needs the role {needed}; {person.name} has the role {person.role}. {' or '.join(granters)} {way}",
        [{"needs": needed, "has": person.role, "grantedBy": list(granters)}],
    )
