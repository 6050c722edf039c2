"""Who decides a setting of the embedded session: the script, then the environment of Spark, then Penstock."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from types import SimpleNamespace

import pytest

from penstock.engine.spark import session
from penstock.engine.spark.class_archive import spark_home
from penstock.engine.spark.session import MASTER, QUICK_START, embedded_session
from penstock.errors import RunError

JVM = "spark.driver.extraJavaOptions"


@pytest.fixture(name="launched")
def a_launcher(monkeypatch, tmp_path):
    """Take the place of Spark's launcher; return a function that starts a session and returns what it was given."""
    for name in ("PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_DRIVER_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(session, "_running", lambda: None)

    def launch(settings=None):
        given = {}
        conf = SimpleNamespace(contains=lambda _: False)
        started = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=None, getConf=lambda: conf))

        def start():
            given.update(os.environ)
            return started

        builder = SimpleNamespace(config=lambda **_: SimpleNamespace(getOrCreate=start))
        monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))
        assert embedded_session(settings) is started
        return given

    return launch


def failing(error):
    """Take the place of a Spark that does not start."""

    def start():
        raise error

    return SimpleNamespace(builder=SimpleNamespace(config=lambda **_: SimpleNamespace(getOrCreate=start)))


STOPPED = (
    "An error occurred while calling None.x.\n: java.lang.IllegalStateException: Cannot call methods on a stopped "
    "SparkContext.\n\tat x"
)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        (
            {"spark.master": "spark://127.0.0.1:1"},
            STOPPED,
            "Spark's master spark://127.0.0.1:1 did not take the application: it did not answer within a minute. Check",
        ),
        (
            {"spark.master": "yarn"},
            "[X] HADOOP_CONF_DIR is not set",
            "Spark's master yarn did not take the application: HADOOP_CONF_DIR is not set. Check",
        ),
        (
            {"spark.master": "local[2]"},
            "JAVA_GATEWAY_EXITED",
            "did not start: JAVA_GATEWAY_EXITED. Run `penstock doctor`",
        ),
    ],
)
def test_why_spark_did_not_start_is_said_with_its_master(launched, monkeypatch, settings, error, said):
    launched()
    monkeypatch.setattr(session, "SparkSession", failing(RuntimeError(error)))
    with pytest.raises(RunError) as raised:
        embedded_session(settings)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_session_that_could_not_be_started_early_is_not_tried_again(launched, monkeypatch):
    """A master that does not answer takes a minute each time."""
    launched()
    monkeypatch.setattr(session, "SparkSession", failing(RuntimeError("first")))
    with pytest.raises(RunError, match="first"):
        embedded_session(early=True)
    monkeypatch.setattr(session, "SparkSession", failing(RuntimeError("second")))
    with pytest.raises(RunError, match="first"):
        embedded_session()
    with pytest.raises(RunError, match="second"):
        embedded_session()


def defaults(given):
    """Return the settings that the launcher was given before those of the user."""
    words = shlex.split(given["PYSPARK_SUBMIT_ARGS"])
    return dict(word.removeprefix("--conf=").split("=", 1) for word in words if word.startswith("--conf="))


def test_failed_tasks_are_retried_by_default(launched):
    assert launched()["MASTER"] == MASTER == "local[*, 4]"


def test_the_environment_is_as_it_was_after_the_start(launched, monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name mine pyspark-shell")
    launched()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--name mine pyspark-shell"
    assert "MASTER" not in os.environ
    assert "SPARK_DRIVER_MEMORY" not in os.environ


def test_what_the_environment_says_stays(launched, monkeypatch):
    monkeypatch.setenv("MASTER", "local[1]")
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "3g")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.scheduler.mode=FIFO pyspark-shell")
    given = launched()
    assert (given["MASTER"], given["SPARK_DRIVER_MEMORY"]) == ("local[1]", "3g")
    assert given["PYSPARK_SUBMIT_ARGS"].endswith(" --conf spark.scheduler.mode=FIFO pyspark-shell"), (
        "last wins"
    )


def test_what_a_script_sets_is_no_default(launched):
    assert defaults(launched())["spark.ui.enabled"] == "false"
    assert "spark.ui.enabled" not in defaults(launched({"spark.ui.enabled": "true"}))


def test_what_a_properties_file_sets_is_no_default(launched, monkeypatch, tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(
        f"# spark.ui.enabled true\n  spark.scheduler.mode   FIFO\n{JVM}=-Xss2m\nspark.app.name: mine\n"
    )
    (tmp_path / "more.conf").write_text("spark.log.level INFO\n")
    taken = {"spark.scheduler.mode", JVM, "spark.app.name"}
    left = defaults(launched({**QUICK_START}))
    assert not taken & left.keys()
    assert {"spark.ui.enabled", "spark.log.level"} <= left.keys()
    for option in ("--properties-file ", "--properties-file="):
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{option}{tmp_path}/more.conf pyspark-shell")
        assert "spark.log.level" not in defaults(launched())


def test_a_quick_start_is_a_default_like_others(launched):
    assert "SerialGC" in defaults(launched(QUICK_START))[JVM]
    assert "SerialGC" not in defaults(launched())[JVM]
    assert JVM not in defaults(launched({**QUICK_START, JVM: "-Xss2m"}))


_SHOW = """
import json, os
from pyspark import TaskContext
from penstock.engine.spark.session import embedded_session, is_ours
spark = embedded_session({"spark.sql.shuffle.partitions": "3"})
context = spark.sparkContext
conf = context.getConf()
names = ("spark.master", "spark.scheduler.mode", "spark.app.name", "spark.sql.session.timeZone",
         "spark.sql.shuffle.partitions", "spark.driver.memory", "spark.python.daemon.module", "spark.ui.enabled")
shown = {name: conf.get(name) for name in names if conf.contains(name)}
arguments = list(context._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
again = embedded_session()
if conf.contains("spark.python.daemon.module") and context.master != "local[1]":
    def work(_):
        attempt = TaskContext.get().attemptNumber()
        if attempt == 0:
            os.kill(os.getpid(), 9)
        return attempt, os.environ.get("MALLOC_MMAP_THRESHOLD_")
    shown["worker"] = context.parallelize([0], 1).map(work).first()
shown |= {"jvm": arguments, "ui": context.uiWebUrl, "ours": is_ours(spark), "master": context.master,
          "again": again.conf.get("spark.sql.session.timeZone")}
print("SHOWN", json.dumps(shown))
"""


def shown(tmp_path, program=_SHOW, launcher=(sys.executable,), **environment):
    """Start a session in a process of its own and return what it shows of its settings."""
    (tmp_path / "program.py").write_text(program)
    hidden = ("PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_DRIVER_MEMORY", "SPARK_CONF_DIR")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    ran = subprocess.run(
        [*launcher, tmp_path / "program.py"],
        env={**clean, "XDG_CACHE_HOME": str(tmp_path / "cache"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (line for line in ran.stdout.splitlines() if line.startswith("SHOWN "))
    assert not (tmp_path / "cache").exists(), "nothing is written to a cache without being asked"
    return json.loads(line.removeprefix("SHOWN "))


@pytest.mark.spark
def test_spark_itself_takes_the_users_settings_before_the_defaults(tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.sql.session.timeZone Europe/Oslo\nspark.driver.memory 1200m\nspark.scheduler.mode FAIR\n"
    )
    seen = shown(
        tmp_path,
        SPARK_CONF_DIR=str(tmp_path),
        PYSPARK_SUBMIT_ARGS="--master local[1] --name mine --conf spark.scheduler.mode=FIFO "
        "--driver-java-options -Xss3m pyspark-shell",
    )
    assert seen["master"] == seen["spark.master"] == "local[1]"
    assert seen["spark.scheduler.mode"] == "FIFO", "the arguments of spark-submit come before its file"
    assert seen["spark.app.name"] == "mine"
    assert seen["spark.sql.session.timeZone"] == seen["again"] == "Europe/Oslo"
    assert {"-Xss3m", "-Xmx1200m"} <= set(seen["jvm"])
    assert not any("CodeCache" in option for option in seen["jvm"])
    assert seen["spark.sql.shuffle.partitions"] == "3"
    assert seen["spark.python.daemon.module"] == "penstock.engine.daemon", "what nobody sets is Penstock's"
    assert seen["ours"]
    assert seen["ui"] is None


@pytest.mark.spark
def test_spark_itself_takes_the_defaults_where_nobody_sets_anything(tmp_path):
    seen = shown(tmp_path)
    assert seen["master"] == MASTER
    assert (seen["spark.scheduler.mode"], seen["spark.app.name"]) == ("FAIR", "penstock")
    assert seen["again"] == "UTC", "what one engine sets, the next one does not inherit"
    assert "-XX:ReservedCodeCacheSize=256m" in seen["jvm"]
    assert seen["ours"]
    attempt, threshold = seen["worker"]
    assert attempt == 1, "a worker that dies costs a retry, not the run"
    assert int(threshold) == 32 << 20


_OWN = """
from pyspark.sql import SparkSession
SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "Europe/Oslo").getOrCreate()
"""


@pytest.mark.spark
def test_a_session_that_runs_already_is_left_as_it_is(tmp_path):
    seen = shown(tmp_path, _OWN + _SHOW)
    assert seen["master"] == "local[1]"
    assert seen["again"] == "Asia/Tokyo"
    assert not seen["ours"]
    assert "spark.python.daemon.module" not in seen
    assert seen["ui"]


@pytest.mark.spark
def test_a_context_that_runs_already_is_its_owners(tmp_path):
    own = 'from pyspark import SparkContext\nSparkContext("local[1]", "mine")\n'
    seen = shown(tmp_path, own + _SHOW)
    assert (seen["master"], seen["ours"]) == ("local[1]", False)


@pytest.mark.spark
def test_what_spark_submit_sets_stays(tmp_path):
    submit = (
        spark_home() / "bin" / "spark-submit",
        "--master",
        "local[1]",
        "--conf",
        "spark.scheduler.mode=FIFO",
    )
    seen = shown(tmp_path, launcher=submit, PYSPARK_PYTHON=sys.executable)
    assert seen["master"] == seen["spark.master"] == "local[1]"
    assert (seen["spark.scheduler.mode"], seen["spark.app.name"]) == ("FIFO", "program.py")
    assert seen["spark.sql.shuffle.partitions"] == "3", "what a script sets counts there too"
    assert "spark.python.daemon.module" not in seen
    assert not seen["ours"]
