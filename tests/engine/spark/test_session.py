"""Who decides a setting of the embedded session: the script, then the environment of Spark, then Penstock."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.engine.spark import launch, session
from penstock.engine.spark.launch import spark_home
from penstock.engine.spark.session import MASTER, QUICK_START, embedded_session
from penstock.errors import InputError, RunError

JVM = "spark.driver.extraJavaOptions"
SOCKETS = "spark.python.unix.domain.socket.dir"
BLOCKS = "spark.local.dir"


@pytest.fixture(name="launched")
def a_launcher(monkeypatch, tmp_path):
    """Take the place of Spark's launcher; return a function that starts a session and returns what it was given."""
    for name in ("PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_DRIVER_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(session, "_running", lambda: None)

    def launch(settings=None):
        given = {}
        conf = SimpleNamespace(contains=lambda _: False, get=lambda _, default=None: default)
        started = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=None, getConf=lambda: conf))

        def launch_jvm(_):
            given.update(os.environ)
            option, *_ = shlex.split(given["PYSPARK_SUBMIT_ARGS"])
            file = Path(option.removeprefix("--properties-file="))
            given.update(file=file, properties=file.read_text(), rights=file.stat().st_mode & 0o777)

        builder = SimpleNamespace(config=lambda **_: SimpleNamespace(getOrCreate=lambda: started))
        monkeypatch.setattr(session, "SparkSession", SimpleNamespace(builder=builder))
        monkeypatch.setattr(session, "SparkContext", SimpleNamespace(getSystemProperty=launch_jvm))
        monkeypatch.setattr(session, "SparkConf", lambda: conf)
        assert embedded_session(settings) is started
        return given

    return launch


def is_in_order(given, *lines):
    """Check that lines are in the properties file, each before the next: of several with one name, the last counts."""
    at = [given["properties"].find(line) for line in lines]
    return -1 not in at and at == sorted(at)


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


def test_settings_are_in_a_private_file_while_the_jvm_starts_and_in_no_argument(launched):
    given = launched({"spark.my.password": "hush"})
    assert "hush" not in given["PYSPARK_SUBMIT_ARGS"]
    assert "spark.my.password=hush" in given["properties"]
    assert given["rights"] == 0o600
    assert given["file"].parent.stat().st_mode & 0o777 == 0o700
    assert not given["file"].exists(), "Spark has read it"


def test_what_a_script_sets_comes_after_the_defaults(launched):
    given = launched({"spark.ui.enabled": "true"})
    assert is_in_order(given, "spark.ui.enabled=false\n", "spark.ui.enabled=true\n")


@pytest.mark.parametrize("option", ["--properties-file ", "--properties-file="])
@pytest.mark.parametrize("loads_defaults", [False, True])
def test_the_users_properties_files_come_between_defaults_and_script(
    launched, monkeypatch, tmp_path, option, loads_defaults
):
    (tmp_path / "spark-defaults.conf").write_text("spark.scheduler.mode   FIFO\nspark.app.name: mine \\")
    default, own = "spark.scheduler.mode=FAIR\n", "spark.scheduler.mode   FIFO\n"
    settings = {"spark.app.name": "ours"}
    assert is_in_order(launched(settings), default, own, "spark.app.name: mine \\\n\nspark.app.name=ours")

    (tmp_path / "more.conf").write_text("spark.log.level INFO\n")
    more = f"{option}{tmp_path}/more.conf" + " --load-spark-defaults" * loads_defaults
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{more} pyspark-shell")
    given = launched(settings)
    assert is_in_order(given, "spark.log.level=ERROR", "spark.log.level INFO\n", "spark.app.name=ours")
    assert is_in_order(given, own, "spark.log.level INFO") == loads_defaults, "as Spark reads them"
    assert "more.conf" not in given["PYSPARK_SUBMIT_ARGS"], "Spark reads one file only"


def test_a_properties_file_that_cannot_be_read_is_an_error_that_names_it(launched, monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file /no/where.conf pyspark-shell")
    with pytest.raises(InputError, match=r"/no/where.conf cannot be read: No such file.* Correct its path"):
        launched()


def test_a_quick_start_is_a_default_like_others(launched):
    quick, slow = launched(QUICK_START), launched()
    assert "SerialGC" in quick["properties"]
    assert "SerialGC" not in slow["properties"]
    given = launched({**QUICK_START, JVM: "-Xss2m"})
    assert is_in_order(given, "SerialGC", f"{JVM}=-Xss2m")


def test_sockets_have_a_private_directory_with_a_short_path_or_workers_connect_by_tcp(
    launched, monkeypatch, tmp_path
):
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setattr(launch, "private_folder", launch.private_folder.__wrapped__)
    folder = Path(launch.socket_folder())
    assert folder.parent == Path("/tmp")  # noqa: S108 - what is tested
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert launch.socket_folder() is None
    assert "socket.enabled=false" in launched()["properties"]


@pytest.mark.parametrize(
    ("settings", "given", "private"),
    [
        ({}, {}, {SOCKETS, BLOCKS}),
        ({"spark.master": "local[2]"}, {"spark.master": "spark://host:7077"}, {SOCKETS, BLOCKS}),
        ({}, {SOCKETS: "/mine"}, {BLOCKS}),
        ({}, {"spark.master": "spark://host:7077"}, set()),
        ({}, {"spark.penstock.launched": None}, set()),
    ],
)
def test_sockets_and_blocks_are_private_where_everything_runs_here_and_the_user_set_nothing_else(
    monkeypatch, settings, given, private
):
    conf = {"spark.master": MASTER, "spark.penstock.launched": "true", **given}
    known = SimpleNamespace(contains=lambda name: conf.get(name) is not None, get=conf.get)
    monkeypatch.setattr(session, "SparkConf", lambda: known)
    found = session._private_folders(settings)
    assert found.keys() == private
    assert set(found.values()) <= {str(launch.private_folder())}


def test_an_error_of_the_launcher_shows_no_secret(launched, monkeypatch):
    def fail(*_):
        raise ValueError("bad value hush-hush")

    monkeypatch.setattr(session, "launcher_environment", fail)
    with pytest.raises(RunError, match="did not start") as error:
        launched({"spark.my.password": "hush-hush"})
    assert "hush" not in str(error.value)


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


_SECRETS = """
import json, os, random, sys
from pathlib import Path
from penstock.engine.spark.launch import properties_text
from penstock.engine.spark.session import embedded_session

draw = random.Random(int(os.environ["SEED"]))
letters = [*" \\t\\r\\n\\f=:#!\\\\'\\"aZ09.-/ä€\\0", chr(0x1F600)]
def word():
    return "".join(draw.choices(letters, k=draw.randint(0, 9)))
drawn = {f"spark.x{number}{word()}": word() for number in range(200)}
spark = embedded_session({**drawn, "spark.hadoop.fs.s3a.secret.key": "hush-4711", "spark.driver.memory": "900m",
                          "spark.sql.extensions": "no.such.Extension"})
context = spark.sparkContext

def commands(_):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().decode("utf-8", "replace"))
        except OSError:
            pass
    return found

seen = commands(0) + context.parallelize([0], 1).flatMap(commands).collect()
java = context._jvm.java
properties = java.util.Properties()
properties.load(java.io.StringReader(properties_text(drawn).decode()))
sockets = Path(context.getConf().get("spark.python.unix.domain.socket.dir"))
shown = {
    "shown_by": [command for command in seen if "hush-4711" in command],
    "processes": [any(word in command for command in seen) for word in ("SparkSubmit", "penstock.engine.daemon")],
    "hadoop": context._jsc.hadoopConfiguration().get("fs.s3a.secret.key"),
    "static": spark.conf.get("spark.sql.extensions"),
    "jvm": list(java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()),
    "wrong": [name for name, value in drawn.items()
              if properties.getProperty(name) != value or context.getConf().get(name) != value],
    "count": properties.size(),
    "sockets": str(sockets), "rights": sockets.stat().st_mode & 0o777,
    "bound": sum(each.is_socket() for each in sockets.iterdir()), "blocks": len(list(sockets.glob("blockmgr-*"))),
}
print("SHOWN", json.dumps(shown))
"""


@pytest.mark.spark
def test_settings_take_effect_and_no_command_line_shows_them(tmp_path):
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201 - to repeat a failure
    seen = shown(tmp_path, _SECRETS, SEED=str(seed))
    assert all(seen["processes"]), "the processes that could show it were there"
    assert seen["shown_by"] == []
    assert seen["hadoop"] == "hush-4711"
    assert seen["static"] == "no.such.Extension"
    assert "-Xmx900m" in seen["jvm"]
    assert (seen["wrong"], seen["count"]) == ([], 200), "Java reads what was written, and Spark has it"
    assert seen["rights"] == 0o700, "only the user can connect to a Python worker"
    assert seen["bound"] > 0
    assert seen["blocks"] == 1, "nor read rows that Spark spills"
    assert not Path(seen["sockets"]).exists(), "removed at the end"


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
