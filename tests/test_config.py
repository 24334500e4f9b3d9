import re
from pathlib import Path
from typing import Any

import pytest

from wirelake import config
from wirelake.address import Address, parse_address
from wirelake.errors import InputError
from wirelake.protocols.settings import UpstreamSettings


def load(*args: Any, **options: Any) -> Any:
    """The sections of protocols are not known to a type checker."""
    return config.load(*args, **options)


def written(folder: Path, text: str) -> Path:
    path = folder / "wirelake.toml"
    path.write_text(text)
    return path


def test_everything_has_a_default() -> None:
    assert load(environment={}) == config.default_settings()
    assert load(environment={}).listen.comet == "127.0.0.1:7334"


def test_a_file_in_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 'data = "here"')
    monkeypatch.chdir(tmp_path)
    assert load(environment={}).data == "here"


def test_the_environment_goes_over_the_file_and_the_command_line_over_both(tmp_path: Path) -> None:
    file = written(tmp_path, 'data = "file"\n[listen]\ncomet = "127.0.0.1:1"\nesnp = "127.0.0.1:2"\n')
    environment = {"WIRELAKE_LISTEN_COMET": "off", "WIRELAKE_DATA": "env", "HOME": "/", "WIRELAKE_LOG_FSYNC": "false"}
    settings = load(file, environment=environment)
    assert (settings.data, settings.listen.comet, settings.listen.esnp) == ("env", "off", "127.0.0.1:2")
    assert settings.log.fsync is False
    assert load(file, Path("given"), environment).data == "given"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("dta = 1", "dta"),
        ("[listen]\ncornet = 'off'", "cornet"),
        ("[log]\nsegment_mb = 0", "segment_mb"),
        ("[log]\nsegment_mb = 'x'", "segment_mb"),
        ("[log]\nkeep_bytes = -1", "keep_bytes"),
        ("[log]\ndisk_bytes_max = 1000", "log.disk_bytes_max = 1000 is below 3 segments"),
        ("[log]\ndisk_bytes_max = 1000000000\nkeep_bytes = 1000000001", "keep_bytes = 1000000001 is above"),
        ("[listen]\ncomet = 'nowhere'", "listen.comet"),
        ("[listen]\ncomet = 'h:70000'", "listen.comet"),
        ("[tls]\ncert = 'a.pem'", "tls.cert"),
        ("[state]\nkey = '0123abcd'", "state.key must be file:PATH, env:NAME or command:WORDS"),
        ("[tls]\nclient_identity = 'cn'", "tls.client_identity needs tls.client_ca"),
        ("[tls]\nclient_identity = 'dn'", "tls.client_identity"),
        ("[sisnet]\ndata_sets = ['redis']", "sisnet.data_sets"),
        ("[sisnet]\ndata_sets = ['a:b']", "sisnet.data_sets"),
        ("[listen", "at end of document"),
        ("[[sisnet.upstreams]]\nname = 'u'\nurl = 'http://h'\nservices = ['a']", "upstream u: 'http://h'"),
        ("[[sisnet.upstreams]]\nname = 'u'\nurl = 'ws://h:port'\nservices = ['a']", "upstream u: 'ws://h:port'"),
        ("[[sisnet.upstreams]]\nname = 'u'\nurl = 'ws://me:secret@h'\nservices = ['a']", "upstream u: a URL has"),
        ("[[sisnet.upstreams]]\nname = 'u'\nurl = 'ws://h'\nservices = ['wirelake']", "upstream u: a service"),
        ("[[sisnet.upstreams]]\nname = 'u'\nurl = 'ws://h'\nservices = []", "services"),
        ("[[sisnet.upstreams]]\nname = 'u'\nurl = 'ws://h'\nservices = ['a']\n" * 2, "the same name"),
    ],
)
def test_a_bad_setting_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        load(written(tmp_path, text), environment={})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dta = 1", "there is no setting dta; did you mean data?"),
        ("[listen]\ncornet = 'off'", "there is no setting listen.cornet; did you mean listen.comet?"),
        ("[lgo]\nfsync = true", "there is no setting lgo; did you mean log?"),
        ("[listen]\ncomet = 1", "listen.comet: expected `str`, got `int`"),
        ("[log]\nkeep_days = -1", "log.keep_days: expected `int` >= 1"),
        ("log = 1", "log: expected `object`, got `int`"),
    ],
)
def test_a_bad_setting_is_told_as_one_would_look_for_it(tmp_path: Path, text: str, told: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InputError) as raised:
        load(file, environment={})
    assert str(raised.value) == f"settings: {file}: {told}"


def test_an_unknown_variable_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="WIRELAKE_LISTEN_CORNET"):
        load(environment={"WIRELAKE_LISTEN_CORNET": "off"})


@pytest.mark.parametrize(
    ("url", "scheme", "address"),
    [
        ("ws://h", "ws", Address("h", 80)),
        ("wss://h:1/x", "wss", Address("h", 1)),
        ("tcp://[::1]", "tcp", Address("::1", 7330)),
        ("tls://h:2", "tls", Address("h", 2)),
    ],
)
def test_urls_of_upstreams(url: str, scheme: str, address: Address) -> None:
    assert UpstreamSettings(name="u", url=url, services=("a",)).parse_url(7330) == (scheme, address)


def test_a_list_in_the_environment_is_words_or_json() -> None:
    text = '[{"name": "u", "url": "ws://h", "services": ["a"]}]'
    settings = load(environment={"WIRELAKE_SISNET_UPSTREAMS": text})
    assert settings.sisnet.upstreams == (UpstreamSettings(name="u", url="ws://h", services=("a",)),)
    with pytest.raises(InputError, match="WIRELAKE_SISNET_UPSTREAMS"):
        load(environment={"WIRELAKE_SISNET_UPSTREAMS": "[{"})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.toml"):
        load(tmp_path / "gone.toml", environment={})


@pytest.mark.parametrize(
    ("text", "address"),
    [("off", None), ("localhost:80", Address("localhost", 80)), ("[::1]:443", Address("::1", 443))],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert parse_address(text, "listen.http") == address
    if address is not None:
        assert str(address) == text


def test_a_list_is_words_with_commas_in_the_environment(tmp_path: Path) -> None:
    assert load(environment={}).sisnet.data_sets == ("sisdb",)
    assert load(written(tmp_path, '[sisnet]\ndata_sets = ["a"]'), environment={}).sisnet.data_sets == ("a",)
    assert load(environment={"WIRELAKE_SISNET_DATA_SETS": "a, b"}).sisnet.data_sets == ("a", "b")


def test_where_the_tables_are(tmp_path: Path) -> None:
    file = tmp_path / "wirelake.toml"
    file.write_text('[lake]\nurl = "s3://bucket/prefix"\n[lake.options]\naws_region = "eu"\naws_token = "hidden"')
    lake = load(file, environment={}).lake
    assert (lake.url, lake.options) == ("s3://bucket/prefix", {"aws_region": "eu", "aws_token": "hidden"})
    for text in (
        "aws_region=us, aws_endpoint=http://h:1/?a=b",
        '{"aws_region": "us", "aws_endpoint": "http://h:1/?a=b"}',
    ):
        lake = load(environment={"WIRELAKE_LAKE_OPTIONS": text}).lake
        assert lake.options == {"aws_region": "us", "aws_endpoint": "http://h:1/?a=b"}


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("WIRELAKE_LAKE_URL", "ftp://h/x", "lake.url = ftp://h/x is no URL that begins with one of file://, s3://"),
        ("WIRELAKE_LAKE_URL", "/srv/lake", None),
        ("WIRELAKE_LAKE_URL", "s3:///prefix", "is no URL"),
        ("WIRELAKE_LAKE_URL", "s3://key:secret@bucket", "lake.url has credentials"),
        ("WIRELAKE_LAKE_URL", "abfss://box@account.dfs.core.windows.net/x", None),
        ("WIRELAKE_LAKE_OPTIONS", "aws_region", "not of the form name=value,name=value"),
        ("WIRELAKE_LAKE_OPTIONS", "{", "starts like JSON, but is not valid"),
    ],
)
def test_a_place_that_cannot_be_one_is_refused(variable: str, text: str, told: str | None) -> None:
    if told is None:
        load(environment={variable: text})
        return
    with pytest.raises(InputError, match=re.escape(told)):
        load(environment={variable: text})
