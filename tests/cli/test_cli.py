"""The command line where no JVM is needed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import penstock
from penstock.cli import main as cli
from penstock.cli.load import load
from penstock.cli.main import main
from penstock.cli.spark_talk import quiet_spark, use_packaged_java
from penstock.errors import InputError, RunError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "monitor.sql")


def test_the_version_needs_no_pyspark_and_is_that_of_the_package():
    code = "import sys, penstock; print(penstock.__version__, 'pyspark' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == [penstock.__version__, "False"]


def test_everything_the_package_promises_is_there():
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Motor'"):
        _ = penstock.Motor


def test_the_types_of_the_surface_are_exported():
    exported = penstock.QueryHandle, penstock.Status
    assert {each.__name__ for each in exported} <= set(penstock.__all__)
    assert isinstance(penstock.noop(), penstock.Sink)


def test_version_and_help_end_well(capfd):
    assert main(["--version"]) == 0
    assert capfd.readouterr().out == f"penstock {penstock.__version__}\n"
    assert main(["--help"]) == 0
    listed = capfd.readouterr().out
    assert all(command in listed for command in ("demo", "run", "explain", "status", "results", "doctor"))


def test_explain_shows_who_reads_each_slice(capfd):
    assert main(["explain", EXAMPLE]) == 0
    text = capfd.readouterr().out
    assert "3 queries" in text
    assert "-> climate, mould, ice" in text


def test_explain_prices_every_strategy_by_assumption_before_anything_has_run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", EXAMPLE, "--compare"]) == 0
    text = capfd.readouterr().out
    assert "assumed: too little has come to measure it" in text
    for strategy in ("* mem-opt", "  cpu-opt", "  pull-up", "  push-down", "  isolated"):
        assert f"  {strategy}" in text
    assert "mem-opt cuts l  0 s 10 s 1 min 10 min" in text
    assert re.search(r"mem-opt against pull-up +\d+ % less memory, \d+ % less comparisons", text)


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        ("pull-up", "[0 s, 10 min)          -> climate (to 10 s), mould (to 1 min), ice"),
        ("push-down", "rows of l   Value > 60 and Value > 95"),
        ("isolated", "Log Humidity by Room (64-bit key), of query mould"),
    ],
)
def test_explain_shows_how_a_strategy_shares(tmp_path, capfd, strategy, says):
    script = tmp_path / "job.sql"
    script.write_text(Path(EXAMPLE).read_text(encoding="utf-8") + f"SET strategy = '{strategy}';")
    assert main(["explain", str(script)]) == 0
    said = capfd.readouterr().out
    assert says in said
    assert f"* {strategy}" in said


def test_a_strategy_that_cannot_be_had_is_refused_with_the_reason(tmp_path, capfd):
    text = Path(EXAMPLE).read_text(encoding="utf-8")
    more = "".join(
        f"CREATE QUERY q{n} AS SELECT T.Room FROM Temperature T JOIN Humidity H ON T.Room = H.Room "
        f"WHERE T.Value > {n} WINDOW 1 min;"
        for n in range(20, 27)
    )
    script = tmp_path / "job.sql"
    script.write_text(f"{text}{more} SET strategy = 'push-down';")
    assert main(["explain", str(script)]) == 2
    assert "push-down cannot divide a stream by" in capfd.readouterr().err


def test_explain_as_json_is_one_json_value(capfd):
    assert main(["explain", EXAMPLE, "--format", "json"]) == 0
    plan = json.loads(capfd.readouterr().out)
    assert [query["name"] for query in plan["chains"][0]["queries"]] == ["climate", "mould", "ice"]


def test_explain_as_mermaid_is_a_flow_chart(capfd):
    assert main(["explain", EXAMPLE, "--format", "mermaid"]) == 0
    assert capfd.readouterr().out.startswith("flowchart LR\n")


def test_of_a_query_without_a_window_explain_and_plan_estimate_the_buffers(tmp_path, monkeypatch, capfd):
    """The model's rows, or that they are unknown; never a window of all time, at some rate."""
    monkeypatch.chdir(tmp_path)
    text = (
        "CREATE STREAM S1 (k BIGINT) WITH (format = 'parquet', path = 's1', scrambling = '500');\n"
        "CREATE STREAM S2 (k BIGINT) WITH (format = 'parquet', path = 's2', scrambling = '30');\n"
        "CREATE QUERY q WITH (sink = 'noop') AS SELECT S1.k FROM S1, S2 WHERE S1.k = S2.k;\n"
    )
    (tmp_path / "known.sql").write_text(text)
    (tmp_path / "unknown.sql").write_text(text.replace("scrambling = '30'", "ordered = 'k'"))
    said = {}
    for script in ("known.sql", "unknown.sql"):
        for command in (["explain", "--compare"], ["explain", "--format", "json"], ["plan"]):
            assert main([command[0], script, *command[1:]]) == 0
            said[script, command[-1]] = capfd.readouterr().out
    assert "* plain: 1,062 rows\n" in said["known.sql", "--compare"]
    assert "without a window: buffers keep 1,062 rows\n" in said["known.sql", "plan"]
    unknown = "unknown until measured: no scrambling is declared for S2\n"
    assert unknown in said["unknown.sql", "--compare"]
    assert f"without a window: buffers of S1 ⋈ S2 {unknown}" in said["unknown.sql", "plan"]
    known, not_known = (json.loads(said[f"{each}.sql", "json"])["buffers"] for each in ("known", "unknown"))
    assert (known[0]["needs"][0]["buffer"], not_known[0]["needs"]) == ([531, 531], [])
    assert all("for ever" not in each and "rows a second" not in each for each in said.values())


def test_explain_leaves_nothing_behind(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", EXAMPLE]) == 0
    assert capfd.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []


def test_doctor_fails_when_a_check_fails(monkeypatch, capfd):
    assert main(["doctor"]) == 0
    assert "Java" in capfd.readouterr().out
    monkeypatch.setattr("penstock.cli.doctor.MEMORY_NEEDED_BYTES", 1 << 60)
    assert main(["doctor"]) == 1


def test_a_setting_without_effect_is_noticed_once_and_one_with_effect_is_not(tmp_path):
    text = Path(EXAMPLE).read_text(encoding="utf-8")
    script = tmp_path / "job.sql"
    wanted = text.replace("path = 'out/ice'", "path = 'out/ice', order = 'filter-order'")
    script.write_text(wanted + "SET strategy = 'auto'; SET memory = '2 GiB';")
    assert load(script).notices == ()
    changed = text.replace("path = 'out/ice'", "path = 'out/ice', alpha = 0.5, idle_after = '1 min'")
    script.write_text(changed + "SET memory = '2 GiB'; SET strategy = 'cpu-opt'; SET scheduler = 'mqt';")
    assert load(script).notices == (
        "memory = 2 gib has no effect: it is for strategy = 'auto' and for queries without a window",
        "alpha = 0.5 of ice has no effect: it is for order = 'adaptive', and the order is none",
        "idle_after = 1 min of ice has no effect: without an order its results wait for no stream",
    )
    ordered = changed.replace("alpha = 0.5", "alpha = 0.5, order = 'adaptive'")
    script.write_text(ordered)
    assert load(script).notices == ()
    lagging = text.replace("path = 'out/ice'", "path = 'out/ice', max_lag = '5 s'")
    script.write_text(lagging)
    assert load(script).notices == (
        "max_lag = 5 s of ice has no effect: with scheduler = 'lwo' no query lags behind another",
    )
    script.write_text(lagging + "SET scheduler = 'swf';")
    assert load(script).notices == ()


@pytest.mark.parametrize("name", ["my.password", "my.secret", "s3.access.key", "accessKey", "api_token"])
def test_a_notice_shows_no_secret(tmp_path, name):
    text = Path(EXAMPLE).read_text(encoding="utf-8")
    script = tmp_path / "job.sql"
    script.write_text(
        f"{text} SET penstock.{name} = 'hush-4711'; SET penstock.url = 'db://me:hush-4711@host';"
    )
    loaded = load(script)
    assert [notice.partition(" ")[0] for notice in loaded.notices] == [f"penstock.{name}", "penstock.url"]
    assert "hush" not in f"{loaded.notices} {loaded.script}"
    assert loaded.script.settings[f"penstock.{name}"] == "hush-4711"


def test_a_notice_of_an_unused_setting_has_no_value(tmp_path):
    """Whether a value is a secret does not show from every name."""
    script = tmp_path / "job.sql"
    script.write_text(f"{Path(EXAMPLE).read_text(encoding='utf-8')} SET penstock.pw = 'hush-4711';")
    assert load(script).notices == ("penstock.pw has no effect: this version does not use it",)


def test_a_query_whose_conditions_exclude_each_other_is_noticed(tmp_path):
    text = Path(EXAMPLE).read_text(encoding="utf-8")
    script = tmp_path / "job.sql"
    script.write_text(
        f"{text};\nCREATE QUERY never AS SELECT X.ts FROM Temperature X, Temperature Y "
        "WHERE X.Room = Y.Room AND X.ts < Y.ts AND Y.ts < X.ts;"
    )
    assert load(script).notices == ("query never has no results: its conditions exclude every pair of rows",)


@pytest.mark.parametrize(
    ("error", "status"),
    [(RunError("disk full"), 1), (InputError("no such thing"), 2), (ValueError("first\nsecond"), 1)],
)
def test_errors_are_said_in_one_piece_and_debug_shows_the_trace(error, status, monkeypatch, capfd):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(cli, "app", fail)
    assert main([]) == status
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("penstock: ")
    assert "Traceback" not in err
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert main([]) == status
    assert "Traceback" in capfd.readouterr().err


def test_lab_and_bench_are_handed_to_the_checkout(monkeypatch):
    seen = []

    def stand_in(module):
        return SimpleNamespace(main=lambda arguments: seen.append((module, arguments)) or 3)

    monkeypatch.setattr(cli, "import_module", stand_in)
    assert main(["lab", "fig", "17", "--help"]) == 3
    assert main(["bench", "--rows", "5"]) == 3
    assert seen == [("papers.cli", ["fig", "17", "--help"]), ("benchmarks.cli", ["--rows", "5"])]


def test_java_beside_python_is_used_only_where_there_is_no_other(tmp_path, monkeypatch):
    packaged = tmp_path / "java"
    packaged.mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    use_packaged_java()
    assert os.environ["JAVA_HOME"] == "/opt/java"
    monkeypatch.delenv("JAVA_HOME")
    use_packaged_java()
    assert os.environ["JAVA_HOME"] == str(packaged)


def test_chatter_of_a_child_is_dropped_and_a_crash_is_passed_on(capfd):
    with quiet_spark():
        subprocess.run(
            ["sh", "-c", "echo 'Setting default log level to \"WARN\".' >&2; echo 'SIGSEGV (0xb)' >&2"],
            check=True,
        )
    assert capfd.readouterr().err == "SIGSEGV (0xb)\n"


def fail_quietly(log_line):
    with quiet_spark() as log:
        log.write_text(log_line)
        raise RunError("the join failed")


def test_the_log_of_a_failed_run_is_kept_and_named():
    with pytest.raises(RunError) as caught:
        fail_quietly("ERROR Executor")
    (note,) = caught.value.__notes__
    log = Path(note.removeprefix("Spark's own log is in "))
    assert log.read_text() == "ERROR Executor"
    shutil.rmtree(log.parent)


def test_the_log_of_a_good_run_is_removed():
    with quiet_spark() as log:
        log.write_text("WARN nothing")
    assert not log.parent.exists()
