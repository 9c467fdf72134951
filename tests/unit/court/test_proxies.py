"""The proxy of the environment is used, and not for what is named as near."""

from __future__ import annotations

import pytest

from kingdom.court.environment import proxy_for


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,.acme.example")


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://api.github.com", "http://proxy.example:3128"),
        ("https://slack.com/api/", "http://proxy.example:3128"),
        ("http://127.0.0.1:8080", None),
        ("https://jira.acme.example", None),
        ("http://plain.example", None),
        ("nonsense", None),
    ],
)
def test_which_proxy_is_used(url: str, proxy: str | None) -> None:
    assert proxy_for(url) == proxy
