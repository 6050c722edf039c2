"""What a user can get wrong: exit status 2, one clear message on standard error, and nothing left behind."""

from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.engine.store import Store
from penstock.errors import InputError

STREAMS = """
CREATE STREAM Temperature (Room BIGINT, Value DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data', time = 'ts');
CREATE STREAM Humidity (Room BIGINT, Value DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data', time = 'ts');
"""
JOIN = "SELECT T.Value FROM Temperature T JOIN Humidity H ON T.Room = H.Room"


def query(text, name="q", options=""):
    return f"{STREAMS} CREATE QUERY {name} {options} AS {text};"


WRONG = {
    "zero window": (query(f"{JOIN} WINDOW 0 seconds"), "positive"),
    "negative window": (query(f"{JOIN} WINDOW -5 seconds"), "WINDOW"),
    "window without a unit": (query(f"{JOIN} WINDOW 10"), "unit"),
    "unknown stream": (
        query(f"{JOIN.replace('Humidity', 'Humidty')} WINDOW 1 min"),
        "did you mean Humidity?",
    ),
    "unknown column": (query(f"{JOIN.replace('T.Value', 'T.Valeu')} WINDOW 1 min"), "Valeu"),
    "unknown option": (query(f"{JOIN} WINDOW 1 min", options="WITH (snk = 'noop')"), "did you mean sink?"),
    "unknown sink": (
        query(f"{JOIN} WINDOW 1 min", options="WITH (sink = 'parket')"),
        "did you mean parquet?",
    ),
    "unknown strategy": (query(f"{JOIN} WINDOW 1 min") + "SET strategy = 'mem-op';", "mem-opt"),
    "unknown setting": (query(f"{JOIN} WINDOW 1 min") + "SET stratgy = 'mem-opt';", "did you mean strategy?"),
    "two queries of one name": (
        query(f"{JOIN} WINDOW 1 min") + f"CREATE QUERY Q AS {JOIN} WINDOW 2 min;",
        "twice",
    ),
    "two streams of one name": (STREAMS + STREAMS, "twice"),
    "no path for a parquet sink": (query(f"{JOIN} WINDOW 1 min", options="WITH (sink = 'parquet')"), "path"),
    "not SQL": ("Dear all, please find attached the report.", "is not a statement"),
    "no join": (query("SELECT Value FROM Temperature WINDOW 1 min"), "q"),
    "no queries": (STREAMS, "CREATE QUERY"),
    "an empty script": ("", "CREATE QUERY"),
    "an unknown query dropped": (query(f"{JOIN} WINDOW 1 min") + "DROP QUERY z;", "query z does not exist"),
    "a source that is not there": (query(f"{JOIN} WINDOW 1 min"), "path 'data' of stream"),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capfd, *arguments):
    """Run a command that must be refused, and give what it said."""
    before = sorted(Path().rglob("*"))
    assert main(list(arguments)) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert sorted(Path().rglob("*")) == before, "something was left behind"
    return err


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_in_a_script_is_said_before_anything_is_made(case, here, capfd):
    text, hint = WRONG[case]
    (here / "job.sql").write_text(text)
    said = refused(capfd, "run", "job.sql", "--once")
    assert said.startswith("penstock: ")
    assert hint in said
    assert said.count("penstock: ") == 1


def test_an_error_in_a_script_points_to_its_place(here, capfd):
    (here / "job.sql").write_text(query(f"{JOIN}\nWINDOW 0 seconds"))
    said = refused(capfd, "explain", "job.sql")
    assert "job.sql: " in said
    assert "(line " in said
    assert said.rstrip().endswith("^")


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_script_that_cannot_be_read_is_named(command, here, capfd):
    assert "script gone.sql does not exist" in refused(capfd, command, "gone.sql")
    (here / "folder.sql").mkdir()
    assert "is a directory" in refused(capfd, command, "folder.sql")
    (here / "binary.sql").write_bytes(b"PAR1\xff\xfe\x00")
    assert "is not text" in refused(capfd, command, "binary.sql")


@pytest.mark.usefixtures("here")
def test_a_directory_without_a_state_is_refused(capfd):
    Path("elsewhere").mkdir()
    for state in ("elsewhere", "gone"):
        assert "is not a state directory" in refused(capfd, "status", "--state", state)
        assert "is not a state directory" in refused(capfd, "results", "q", "--state", state)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "command", [["status"], ["drop", "q"], ["repair"], ["explain", "x.sql"], ["plan", "x.sql"]]
)
def test_a_state_that_is_a_file_is_refused(command, capfd):
    Path("data").mkdir()
    Path("x.sql").write_text(query(f"{JOIN} WINDOW 1 min"))
    Path("file").touch()
    assert "Not a directory. Give a directory that you may read" in refused(
        capfd, *command, "--state", "file"
    )


@pytest.mark.usefixtures("here")
def test_a_state_is_not_made_in_a_file(tmp_path):
    Path("file").touch()
    with pytest.raises(InputError, match=r"file is not a directory\. Give another path"):
        Store(str(tmp_path / "file"))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["results", "q"],
        ["run"],
        ["explain", "x.sql", "--format", "pdf"],
        ["dance"],
        ["run", "x", "--twice"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused_with_its_usage(arguments, capfd):
    assert "Usage: penstock" in refused(capfd, *arguments)


@pytest.mark.usefixtures("here")
def test_the_demo_does_not_write_into_a_directory_that_is_in_use(capfd):
    Path("full").mkdir()
    Path("full/file").touch()
    assert "not empty" in refused(capfd, "demo", "--keep", "full")
    assert "not empty" in refused(capfd, "demo", "sharing", "--keep", "full")


@pytest.mark.usefixtures("here")
def test_a_demo_that_does_not_exist_is_refused(capfd):
    said = refused(capfd, "demo", "sharin")
    assert said == "penstock: there is no demo sharin: did you mean sharing?\n"


@pytest.mark.usefixtures("here")
def test_commands_that_need_a_checkout_say_so(capfd, monkeypatch):
    monkeypatch.setattr("penstock.cli.main._IN_CHECKOUT", {"lab": "nowhere.cli", "bench": "nowhere.cli"})
    assert "needs a checkout" in refused(capfd, "lab", "list", "--all")
    assert "needs a checkout" in refused(capfd, "bench", "--help")
