"""`penstock run` from end to end, on the example of the README, against DuckDB."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

import duckdb
import pytest

from penstock.cli.main import main
from penstock.cli.spark_talk import is_chatter
from penstock.engine.store import Store

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STATE = ".penstock/monitor"
WHERE = {
    "climate": (10, "true"),
    "mould": (60, "T.Value > 15 AND H.Value > 60"),
    "ice": (600, "T.Value < -5 AND H.Value > 95"),
}


def example(folder):
    """Put the example and its readings into `folder`.

    Spark takes a relative path to begin where its JVM was started, which may have been another test's folder.
    """
    text = (EXAMPLES / "monitor.sql").read_text(encoding="utf-8")
    (folder / "monitor.sql").write_text(text.replace("'data/", f"'{folder}/data/"), encoding="utf-8")
    subprocess.run([sys.executable, EXAMPLES / "make_readings.py"], cwd=folder, check=True)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The example, run once to its end."""
    folder = tmp_path_factory.mktemp("example")
    example(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["run", "monitor.sql", "--once"]) == 0
    return folder


@pytest.fixture
def here(ended, monkeypatch):
    monkeypatch.chdir(ended)
    return ended


def expected(query):
    """Ask DuckDB for a query's (Room, temperature, humidity)."""
    seconds, where = WHERE[query]
    found = duckdb.sql(f"""
        SELECT T.Room, T.Value, H.Value
        FROM 'data/temperature/*.parquet' T JOIN 'data/humidity/*.parquet' H ON T.Room = H.Room
        WHERE {where} AND abs(epoch_us(T.ts) - epoch_us(H.ts)) < {seconds} * 1000000
    """)
    return Counter(found.fetchall())


def printed(capfd, *arguments):
    assert main(list(arguments)) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


def rows(capfd, query):
    """Read a query's results through the command line."""
    lines = printed(capfd, "results", query, "--state", STATE, "--format", "json").splitlines()
    found = (json.loads(line) for line in lines)
    return Counter((row["Room"], row["temperature"], row["humidity"]) for row in found)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("query", WHERE)
def test_results_are_those_of_another_engine(query, capfd):
    assert rows(capfd, query) == expected(query)
    count = printed(capfd, "results", query.upper(), "--state", STATE, "--count")
    assert int(count) == expected(query).total()


@pytest.mark.usefixtures("here")
def test_status_tells_what_was_read_and_delivered(capfd):
    status = json.loads(printed(capfd, "status", "--state", STATE, "--format", "json"))
    assert {each["name"]: each["rows"] for each in status["streams"]} == {
        "Temperature": 1440,
        "Humidity": 1440,
    }
    assert {each["name"]: each["results"] for each in status["queries"]} == {
        query: expected(query).total() for query in WHERE
    }
    assert all(each["lag_rows"] == 0 for each in status["queries"])
    text = printed(capfd, "status", "--state", STATE)
    assert "rows held; separate queries would hold" in text


@pytest.mark.usefixtures("here")
def test_results_are_written_as_a_table_and_as_csv(capfd):
    table = printed(capfd, "results", "ice", "--state", STATE, "--limit", "2")
    assert "2 of 7 results" in table
    text = printed(capfd, "results", "ice", "--state", STATE, "--format", "csv")
    found = list(csv.DictReader(io.StringIO(text)))
    assert len(found) == 7
    assert found[0]["Room"] == "0"


@pytest.mark.usefixtures("here")
def test_an_unknown_query_is_refused_with_the_nearest_name(capfd):
    assert main(["results", "climat", "--state", STATE]) == 2
    out, err = capfd.readouterr()
    assert (out, err) == ("", "penstock: query climat does not exist: did you mean climate?\n")


def test_running_again_adds_nothing(here, capfd):
    before = {path: path.stat().st_size for path in here.glob("out/*/*.parquet")}
    said = printed(capfd, "run", "monitor.sql", "--once")
    assert "done after" in said
    assert {path: path.stat().st_size for path in here.glob("out/*/*.parquet")} == before
    assert rows(capfd, "mould") == expected("mould")


def test_a_stream_declared_differently_is_refused(here, capfd):
    text = (here / "monitor.sql").read_text().replace("lateness = '5 seconds'", "lateness = '9 seconds'")
    (here / "other.sql").write_text(text)
    assert main(["run", "other.sql", "--once", "--state", STATE]) == 2
    assert "is not declared as it was" in capfd.readouterr().err


def test_plan_says_what_an_edited_script_would_change_and_changes_nothing(here, capfd):
    text = (here / "monitor.sql").read_text().replace("WINDOW 1 minute", "WINDOW 2 minutes")
    text = text.replace("QUERY climate", "QUERY weather")
    (here / "edited.sql").write_text(text)
    before = printed(capfd, "status", "--state", STATE, "--format", "json")
    assert main(["plan", "edited.sql", "--state", STATE]) == 2
    assert "would lose results: query climate is not among the queries any more" in capfd.readouterr().err
    said = printed(capfd, "plan", "edited.sql", "--state", STATE, "--accept-loss")
    assert re.search(r"\+ weather +WINDOW 10 s +complete from 2024-01-01 \d\d:\d\d:\d\d(\.\d+)? UTC", said)
    assert "~ mould        WINDOW 1 min -> WINDOW 2 min, from here on" in said
    assert "- climate      its results are in a table of the state, and cannot be read any more" in said
    assert "split at r - l = 2 min" in said
    assert "merged at r - l = 1 min" in said
    assert re.search(r"state: \d+ rows are held, \d+ of them would be kept", said)
    assert re.search(r"expected by \w+ rates: [\d,]+ rows held, .* of state", said)
    assert "lost: query climate" in said
    assert printed(capfd, "status", "--state", STATE, "--format", "json") == before
    assert printed(capfd, "plan", "monitor.sql") == "nothing would change\n"


@pytest.mark.usefixtures("here")
def test_explain_on_a_state_shows_what_was_measured_beside_what_is_predicted(capfd):
    said = printed(capfd, "explain", "monitor.sql", "--compare")
    assert "streams (" in said
    assert re.search(r"l keeps +\d+\.\d% +Value > 60", said)
    assert re.search(r"\* mem-opt +1 +6 +[\d,]+", said)
    assert re.search(r"measured +[\d,]+ +[\d,]+ pairs/s", said)
    assert "mem-opt against isolated" in said
    costs = json.loads(printed(capfd, "explain", "monitor.sql", "--format", "json"))["costs"]
    assert costs[0]["found"]["rows"] > 0
    assert 0 < costs[0]["selectivities"]["l"]["Value > 95"] < costs[0]["selectivities"]["l"]["Value > 60"] < 1


@pytest.mark.usefixtures("here")
def test_there_must_be_an_engine_to_add_to_or_drop_from(capfd):
    for command in (["add", "monitor.sql"], ["drop", "ice"]):
        assert main([*command, "--state", STATE]) == 2
        said = f"no engine runs on {STATE}: start one with `penstock run SCRIPT --state {STATE}`"
        assert said in capfd.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_state_that_an_engine_owns_is_refused(capfd):
    owner = Store(STATE)
    try:
        assert main(["run", "monitor.sql", "--once"]) == 1
    finally:
        owner.close()
    err = capfd.readouterr().err
    assert "is owned by" in err
    assert "Traceback" not in err


def test_what_only_spark_can_refuse_leaves_no_state_behind(here, capfd):
    text = (
        (here / "monitor.sql")
        .read_text()
        .replace("out/", "out2/")
        .replace("SELECT T.Room,", "SELECT rom(T.Room),")
    )
    (here / "misspelt.sql").write_text(text)
    assert main(["run", "misspelt.sql", "--once", "--state", "new/deep/state"]) == 2
    # pyspark logs to the standard error that Python knows, which under pytest is not the process's own
    (said,) = (line for line in capfd.readouterr().err.splitlines() if not is_chatter(line))
    assert said.startswith("penstock: query climate: ")
    assert "ROM" in said
    assert not (here / "new").exists()
    assert not (here / "out2").exists()


def test_a_file_that_cannot_be_read_is_named_and_the_run_goes_on_once_it_is_mended(
    tmp_path, monkeypatch, capfd
):
    example(tmp_path)
    monkeypatch.chdir(tmp_path)
    last = tmp_path / "data" / "humidity" / "2.parquet"
    whole, date = last.read_bytes(), last.stat()
    last.write_bytes(b"PAR1 this is not Parquet")
    os.utime(last, (date.st_atime, date.st_mtime))
    assert main(["run", "monitor.sql", "--once"]) == 1
    err = capfd.readouterr().err
    assert str(last) in err
    assert "\tat org.apache" not in err
    assert "Traceback" not in err
    last.write_bytes(whole)
    os.utime(last, (date.st_atime, date.st_mtime))
    assert main(["run", "monitor.sql", "--once"]) == 0
    capfd.readouterr()
    assert rows(capfd, "ice") == expected("ice")


def test_a_running_engine_can_be_looked_at_and_ends_well_on_sigterm(tmp_path, monkeypatch, capfd):
    example(tmp_path)
    monkeypatch.chdir(tmp_path)
    script = (tmp_path / "monitor.sql").read_text(encoding="utf-8")
    (tmp_path / "monitor.sql").write_text(f"SET spark.ui.enabled = 'true';\n{script}", encoding="utf-8")
    command = [sys.executable, "-m", "penstock.cli.main", "run", "monitor.sql"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            wait_until(lambda: "ice" in results_so_far(capfd), running)
            look_at_spark([running.stdout.readline() for _ in range(2)])
            assert main(["run", "monitor.sql"]) == 1
            assert "is owned by" in capfd.readouterr().err
            ask_for_changes(tmp_path, capfd)
        finally:
            running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert "stopped after" in out
    assert err == "stopping after the current unit; press Ctrl-C again to stop at once\n"
    assert rows(capfd, "ice") == expected("ice")


def look_at_spark(lines):
    """Open Spark's UI at the address that was printed; streaming queries are named after their streams."""
    (address,) = (line.split()[-1] for line in lines if line.startswith("Spark UI: "))
    with urlopen(f"{address}/StreamingQuery/", timeout=60) as page:  # noqa: S310 - the address that was printed
        text = page.read().decode()
    assert "penstock-Temperature" in text
    assert "penstock-Humidity" in text


def ask_for_changes(folder, capfd):
    """Add a query to a running engine and drop one, from outside."""
    join = "FROM Temperature T JOIN Humidity H ON T.Room = H.Room"
    (folder / "more.sql").write_text(f"CREATE QUERY more AS SELECT T.Room {join} WINDOW 5 seconds;")
    assert "added more: complete from 2024-01-01" in printed(capfd, "add", "more.sql", "--state", STATE)
    assert main(["add", "more.sql", "--state", STATE]) == 2
    assert "query more exists already" in capfd.readouterr().err
    assert "dropped climate" in printed(capfd, "drop", "climate", "--state", STATE)
    status = json.loads(printed(capfd, "status", "--state", STATE, "--format", "json"))
    assert [each["name"] for each in status["queries"]] == ["mould", "ice", "more"]


def results_so_far(capfd):
    """Name the queries of which there are results."""
    if main(["status", "--state", STATE, "--format", "json"]) != 0:
        capfd.readouterr()
        return []
    status = json.loads(capfd.readouterr().out)
    complete = all(each["rows"] == 1440 for each in status["streams"])
    return [
        each["name"] for each in status["queries"] if each["results"] and not each["lag_rows"] and complete
    ]


def wait_until(condition, process, seconds=120):
    """Wait for a condition, as long as the process lives."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.5)
