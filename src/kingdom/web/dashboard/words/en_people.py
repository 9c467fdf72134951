"""English texts of the page of people and of roles."""

from __future__ import annotations

from typing import Final

PEOPLE_WORDS: Final[dict[str, str]] = {
    "people.title": "People",
    "people.about": "Each person has a token of their own. Its role says what they may do. "
    "What they do is signed with their name.",
    "people.tokens": "Access tokens",
    "people.none": "Nobody has a token of their own",
    "people.none.hint": "The link of kingdom web --link is that of the owner, who may do everything.",
    "people.you": "you",
    "people.never": "never",
    "people.times": "created {created} · last used {used}",
    "people.revoke": "Revoke",
    "people.revoke.of": "Revoke the token of {name}",
    "people.revoke.sure": "Revoke the token of {name}?",
    "people.revoke.detail": "It ends at once, with all pages and streams that use it. What {name} did stays signed.",
    "people.revoked": "The token of {name} is revoked.",
    "people.add": "Add a person",
    "people.add.do": "Create token",
    "people.added": "{name} has a token.",
    "people.name": "Name",
    "people.name.hint": "For example ann or ann@example.org",
    "people.role": "Role",
    "people.roles": "Roles",
    "people.new": "The token of {name}",
    "people.new.hint": "Give the link or the token to them now: it is not stored, and cannot be shown again.",
    "people.link": "Link that logs a browser in",
    "people.token": "Token for programs",
    "people.new.done": "I have copied it",
    "access.look": "look",
    "access.answer": "answer",
    "access.operate": "operate",
    "access.own": "own",
    "access.look.may": "See everything, change nothing.",
    "access.answer.may": "Also answer questions.",
    "access.operate.may": "Also emit events, run and change workflows, retry, cancel, acknowledge and mute.",
    "access.own.may": "Also install generals, register MCP servers, and add and revoke tokens.",
    "access.needed": "This needs the role {role}; you have {yours}. An owner can give you another token.",
    "settings.you": "You",
    "settings.you.are": "{name} (role: {role})",
    "settings.people": "People and their tokens",
}
