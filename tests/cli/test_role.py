"""Test `role`, `access`, `identity add --role` and `identity roles`, with and without a running gateway."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.serving import serving, wirelake, write_settings

ROLES = """
[roles.phone]
subscribe = ["@news/**", "@inbox/{identity}"]
publish = ["@chat/*"]

[roles.operator]
command = ["00*"]
"""


@pytest.fixture(params=["alone", "beside a gateway"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "alone":
        yield write_settings(tmp_path, text=ROLES)
        return
    with serving(tmp_path, "http", text=ROLES) as running:
        yield running.settings


def run(settings: Path, *words: str) -> tuple[int, str, str]:
    result = wirelake(*words, "--config", str(settings))
    return result.returncode, result.stdout, result.stderr


def roles_of(settings: Path) -> dict[str, list[str]]:
    return {row["name"]: row["roles"] for row in json.loads(run(settings, "identity", "list", "--json")[1])}


def test_an_identity_has_roles(settings: Path) -> None:
    assert run(settings, "identity", "add", "phone-1", "--role", "phone", "--role", "operator")[0] == 0
    assert run(settings, "identity", "add", "erp")[0] == 0
    assert roles_of(settings) == {"erp": [], "phone-1": ["phone", "operator"]}
    table = run(settings, "identity", "list")[1]
    assert [line.split()[0] for line in table.splitlines() if "phone, operator" in line] == ["phone-1"]
    assert [line.split()[-1] for line in table.splitlines() if line.startswith("erp")] == ["member"]

    assert run(settings, "identity", "roles", "phone-1", "observer") == (0, "", "phone-1: observer\n")
    assert roles_of(settings)["phone-1"] == ["observer"]

    code, output, error = run(settings, "identity", "roles", "phone-1", "phon")
    assert (code, output) == (1, "")
    assert error.startswith("wirelake: no role is called 'phon': there are admin, observer, member, phone, operator")
    assert run(settings, "identity", "add", "phone-2", "--role", "phon")[0] == 1
    assert roles_of(settings) == {"erp": [], "phone-1": ["observer"]}, "nothing has changed"
    code, _, error = run(settings, "identity", "roles", "nobody", "phone")
    assert code == 1
    assert error.startswith("wirelake: no identity 'nobody'")
    assert run(settings, "identity", "roles", "phone-1")[0] == 2, "a role is needed"


def test_access_names_the_rule(settings: Path) -> None:
    run(settings, "identity", "add", "phone-1", "--role", "phone")
    run(settings, "identity", "add", "erp")
    for words, expected in (
        (("phone-1", "subscribe", "@news/a/b"), (0, "allowed by role phone: subscribe @news/**\n", "")),
        (("phone-1", "subscribe", "@inbox/phone-1"), (0, "allowed by role phone: subscribe @inbox/{identity}\n", "")),
        (
            ("phone-1", "subscribe", "@inbox/phone-2"),
            (1, "refused: no rule of phone allows subscribe @inbox/phone-2\n", ""),
        ),
        (("erp", "publish", "@any"), (0, "allowed by role member: publish **\n", "")),
        (("erp", "command", "0042"), (1, "refused: no rule of member allows command 0042\n", "")),
    ):
        assert run(settings, "access", *words) == expected
    run(settings, "identity", "roles", "erp", "operator", "member")
    assert run(settings, "access", "erp", "command", "0042")[:2] == (0, "allowed by role operator: command 00*\n")
    code, _, error = run(settings, "access", "nobody", "publish", "@a")
    assert code == 1
    assert error.startswith("wirelake: no identity 'nobody'")
    code, _, error = run(settings, "access", "erp", "dance", "@a")
    assert code == 2
    assert "'dance' is not one of 'publish', 'subscribe'" in error


def test_roles_are_listed_and_shown(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, text=ROLES)
    listed = json.loads(run(settings, "role", "list", "--json")[1])
    assert [(row["name"], row["built_in"]) for row in listed] == [
        ("admin", True),
        ("observer", True),
        ("member", True),
        ("phone", False),
        ("operator", False),
    ]
    assert listed[3]["rules"] == {"publish": ["@chat/*"], "subscribe": ["@news/**", "@inbox/{identity}"]}
    table = run(settings, "role", "list")[1]
    assert [line.split() for line in table.splitlines() if line.startswith("operator")] == [["operator", "command"]]
    code, shown, _ = run(settings, "role", "show", "phone")
    assert code == 0
    assert [line.split() for line in shown.splitlines()] == [
        ["action", "targets"],
        ["publish", "@chat/*"],
        ["subscribe", "@news/**", "@inbox/{identity}"],
    ]
    code, _, error = run(settings, "role", "show", "phon")
    assert code == 1
    assert error == "wirelake: no role is called 'phon': there are admin, observer, member, phone, operator\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[roles.member]\npublish = ["**"]', "roles.member: this role is built in and cannot be changed"),
        ('[roles.x]\npublish = ["@{name}"]', "roles.x.publish: invalid pattern '@{name}': only {identity} can stand"),
        ('[roles.x]\npublish = ["***"]', "roles.x.publish: invalid pattern '***': write * or **"),
        ('[roles.x]\npublishes = ["**"]', "there is no setting roles.x.publishes"),
        ('[roles.x]\npublish = "**"', "roles.x.publish: expected `array`"),
        ('[roles."a b"]\npublish = ["**"]', "roles.a b: the name of a role has letters, digits, - and _ only"),
    ],
)
def test_an_error_in_a_role_names_the_setting(tmp_path: Path, text: str, error: str) -> None:
    settings = write_settings(tmp_path, text=text)
    for words in (("role", "list"), ("serve",), ("identity", "list")):
        code, output, errors = run(settings, *words)
        assert (code, output) == (1, "")
        assert error in errors
        assert errors.count("\n") == 1


def test_a_reload_applies_changed_roles(tmp_path: Path) -> None:
    with serving(tmp_path, "http", text=ROLES) as running:
        running.run("identity", "add", "phone-1", "--role", "phone")
        assert running.run("access", "phone-1", "publish", "@chat/a").returncode == 0
        settings = running.settings
        settings.write_text(settings.read_text().replace('"@chat/*"', '"@talk/*"'))
        reloaded = running.run("reload")
        assert reloaded.returncode == 0, reloaded.stderr
        assert "roles.phone.publish" in reloaded.stdout + reloaded.stderr
        assert running.run("access", "phone-1", "publish", "@chat/a").returncode == 1
        assert running.run("access", "phone-1", "publish", "@talk/a").returncode == 0


def test_where_everybody_is_admitted_a_name_has_no_roles(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, text="[auth]\nopen = true\n")
    assert run(settings, "identity", "add", "root", "--role", "admin")[0] == 0
    code, output, _ = run(settings, "access", "root", "command", "0042")
    assert (code, output) == (1, "refused: no rule of member allows command 0042\n")
