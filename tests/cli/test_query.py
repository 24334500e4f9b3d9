import asyncio
import json
from pathlib import Path

from click.testing import CliRunner
from gateway.running_gateway import running_gateway
from lake.writing import write

from cli.serving import wirelake as wirelake_process
from cli.serving import write_settings
from wirelake.cli.main import wirelake
from wirelake.lake.tables import READINGS


def run_query(tmp_path: Path, *words: str) -> tuple[int, str, str]:
    write(tmp_path / "lake", READINGS, {"seq": 1, "serial": "m,1", "value": 1.5}, {"seq": 2, "serial": "m2"})
    done = CliRunner().invoke(wirelake, ["query", "--data", str(tmp_path), *words])
    return done.exit_code, done.stdout, done.stderr


SQL = "SELECT seq, serial, value FROM silver.readings ORDER BY seq"


def test_a_table_for_people(tmp_path: Path) -> None:
    code, out, err = run_query(tmp_path, SQL)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [["seq", "serial", "value"], ["1", "m,1", "1.5"], ["2", "m2"]]
    assert "2 rows in" in err


def test_json_and_csv_for_programs(tmp_path: Path) -> None:
    _, out, _ = run_query(tmp_path, SQL, "--format", "json", "--rows", "1")
    assert [json.loads(line) for line in out.splitlines()] == [{"seq": 1, "serial": "m,1", "value": 1.5}]
    _, out, err = run_query(tmp_path / "other", SQL, "--format", "csv")
    assert out == 'seq,serial,value\n1,"m,1",1.5\n2,m2,\n'
    assert err == ""


def test_a_fault_is_told_in_one_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(wirelake, ["query", "--data", str(tmp_path), "DELETE FROM gold.ledger"])
    assert "SELECT, not DELETE" in str(done.exception)


def test_a_lake_without_tables_says_so(tmp_path: Path) -> None:
    done = CliRunner().invoke(wirelake, ["query", "--data", str(tmp_path), "SELECT seq FROM silver.readings"])
    assert (done.exit_code, done.stdout.split()) == (0, ["seq"])
    assert f"No tables in {tmp_path / 'lake'} yet" in done.stderr
    assert "No table" not in run_query(tmp_path / "filled", "SELECT seq FROM silver.readings WHERE false")[2]


async def test_an_identity_queries_what_its_roles_allow(tmp_path: Path) -> None:
    roles = {"reader": {"query": ["silver.readings"]}}
    async with running_gateway(tmp_path, "http", identities=[("bob", "bobs-token", "reader")], roles=roles) as running:
        write(running.gateway.folder / "lake", READINGS, {"seq": 1, "serial": "m1", "value": 1.5})
        settings, token = write_settings(tmp_path, ports={"http": running.port("http")}), tmp_path / "bobs"
        token.write_text("bob:bobs-token")
        words = ("--config", str(settings), "--token-file", str(token), "--format", "json")
        allowed = await asyncio.to_thread(wirelake_process, "query", SQL, *words)
        refused = await asyncio.to_thread(wirelake_process, "query", "SELECT * FROM silver.messages", *words)
    assert json.loads(allowed.stdout) == {"seq": 1, "serial": "m1", "value": 1.5}
    assert (refused.returncode, "access denied: query silver.messages" in refused.stderr) == (1, True), refused.stderr
