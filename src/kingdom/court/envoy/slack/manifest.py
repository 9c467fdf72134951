"""The Slack app that the envoy needs, as Slack wants it described."""

from __future__ import annotations

from typing import Any, Final

BOT_SCOPES: Final = {
    "app_mentions:read": "hear when it is mentioned",
    "channels:history": "hear replies in threads, and find its own posts again",
    "channels:read": "find channels by their names",
    "chat:write": "say something",
    "groups:history": "the same in private channels",
    "groups:read": "the same in private channels",
    "im:history": "hear direct messages",
    "im:read": "know direct messages",
    "im:write": "write to a person",
    "reactions:write": "show how far a task is",
    "users:read": "show the names of the users on the list",
}
"""What the bot token must be allowed, and what for."""
OPTIONAL: Final = frozenset({"groups:history", "groups:read", "im:read", "reactions:write", "users:read"})
"""What can be done without."""
EVENTS: Final = ("app_mention", "message.channels", "message.groups", "message.im")


def app_manifest(name: str) -> dict[str, Any]:
    """The manifest to paste at api.slack.com, for a new app "from a manifest"."""
    return {
        "display_information": {
            "name": name[:35],
            "description": "AI teammates: what they do, what they ask, and where to answer",
        },
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": name[:80], "always_online": True},
        },
        "oauth_config": {"scopes": {"bot": list(BOT_SCOPES)}},
        "settings": {
            "event_subscriptions": {"bot_events": list(EVENTS)},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            "token_rotation_enabled": False,
        },
    }
