"""What a kafka: URL may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.bus import InvalidOption, connect
from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.kafka import _settings
from kingdom.bus.transports.kafka._topics import streams_in, topics_of
from kingdom.bus.urls import redact_url


def parse(url: str, **query: str) -> _settings.Settings:
    return _settings.Settings.parse(url, TransportOptions(query=query))


def test_a_port_that_is_left_out_is_the_usual_one() -> None:
    assert parse("kafka://one,two:9093/").servers == "one:9092,two:9093"


def test_user_and_password_mean_sasl_over_tls() -> None:
    client = parse("kafka://me:s%40crt@host").client()
    assert (client["sasl.username"], client["sasl.password"]) == ("me", "s@crt")
    assert (client["security.protocol"], client["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")


def test_a_password_is_not_in_what_is_printed(tmp_path: Path) -> None:
    secrets = tmp_path / "client.properties"
    secrets.write_text("# ours\nsasl.username=me\nsasl.password=hunter2\n")
    for settings in (parse("kafka://me:hunter2@host"), parse("kafka://host", properties=str(secrets))):
        assert settings.client()["sasl.password"] == "hunter2"
        assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("kafka:///?prefix=a.", "names no broker"),
        ("kafka://host/topic", "names a path"),
        ("kafka://host/?prefix=a/b", "prefix='a/b'"),
        ("kafka://host/?remember=many", "remember=many: must be a number"),
        ("kafka://host/?acks=0", "unknown option 'acks'"),
        ("kafka://host/?sasl.jaas.config=x", "use sasl.username and sasl.password"),
        ("kafka://host/?properties=/nowhere/at/all", "/nowhere/at/all cannot be read"),
    ],
)
def test_what_is_wrong_is_said(url: str, why: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        connect(url)
    assert why in str(refused.value)


@pytest.mark.parametrize("stream", ["a", "a.b", "a_b", "a-b", "a--b", "a-ledger", "a:b@c+d", "-", "a-", "x" * 100])
def test_a_stream_is_found_by_the_names_of_its_topics(stream: str) -> None:
    topics = topics_of("shop.", stream)
    assert len(topics.snapshot) <= 249
    assert streams_in("shop.", [*topics, "shop.-v1", "other"]) == [stream]


def test_a_secret_of_the_client_is_not_in_a_url_that_is_shown() -> None:
    url = "kafka://me:hunter2@host/?ssl.key.password=hunter2&sasl.oauthbearer.client.secret=hunter2&ssl.key.pem=hunter2"
    assert "hunter2" not in redact_url(url)
