"""Launch Spark's JVM with its settings in a private file, because every user can read a command line.

PySpark passes settings as ``--conf name=value``, and ``/proc/<pid>/cmdline`` shows them for as long as the JVM runs.
Here the JVM is launched before PySpark knows a setting, with one properties file, where the last value of a name wins::

    Penstock's defaults ──▶ spark-defaults.conf, --properties-file ──▶ settings of the script

The other arguments in ``PYSPARK_SUBMIT_ARGS`` win against the file.  It is removed as soon as the JVM runs.

In:  defaults, settings, environment variables.  Out: an environment in which PySpark launches the JVM.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import InputError
from penstock.state.cache import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_FILE = "--properties-file"

_MOST_SOCKET_FOLDER_BYTES = 61
"""Spark's limit for the directory of sockets: a socket's path has 104 bytes on macOS, of which its name takes 43."""
_MOST_PARENT_BYTES = _MOST_SOCKET_FOLDER_BYTES - len("/penstock-abcdefgh")


def spark_home() -> Path:
    """Return the directory of Spark, without importing it."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise FileNotFoundError("pyspark is not installed")
    return Path(package.origin).parent


@contextmanager
def launcher_environment(
    defaults: Mapping[str, str], settings: Mapping[str, str], variables: Mapping[str, str]
) -> Iterator[None]:
    """Set environment variables, and arguments for a JVM launched in this block; restore both after it."""
    words, user_files = _split_arguments(shlex.split(os.environ.get(_ARGUMENTS, "pyspark-shell")))
    file = private_folder() / "spark.properties"
    wanted = {**variables, _ARGUMENTS: shlex.join([f"{_FILE}={file}", *words])}
    before = {name: os.environ.get(name) for name in wanted}
    parts = [properties_text(defaults), *map(_read, user_files), properties_text(settings)]
    try:
        file.touch(mode=0o600)
        file.write_bytes(b"\n\n".join(parts))  # a blank line ends a line that the user's file continues
        os.environ.update(wanted)
        yield
    finally:
        file.unlink(missing_ok=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _split_arguments(words: list[str]) -> tuple[list[str], list[Path]]:
    """Separate the properties files that spark-submit would read from its other arguments."""
    rest, named = [], None
    remaining = iter(words)
    for word in remaining:
        option, joined, value = word.partition("=")
        if option == _FILE:
            named = Path(value if joined else next(remaining, ""))
        else:
            rest.append(word)
    files = [named] if named else []
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf") / "spark-defaults.conf"
    if (not named or "--load-spark-defaults" in rest) and defaults.is_file():
        files.insert(0, defaults)
    return rest, files


def _read(file: Path) -> bytes:
    """Read a properties file of the user."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(
            f"Spark's properties file {file} cannot be read: {error.strerror}. "
            f"Correct its path in {_ARGUMENTS}, or its permissions"
        ) from None


def properties_text(settings: Mapping[str, str]) -> bytes:
    r"""Write settings as Java reads properties: everything but plain characters as UTF-16 escapes.

    >>> properties_text({"spark.a": " 1=ü\\"})
    b'spark.a=\\u00201\\u003d\\u00fc\\u005c\n'
    """
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items()).encode()


def _escaped(text: str) -> str:
    """Escape all characters but letters, digits and a few signs."""
    return re.sub(r"[^\w./-]", lambda found: _units(found[0]), text, flags=re.ASCII)


def _units(character: str) -> str:
    """Write one character as the escapes of its one or two UTF-16 units."""
    units = character.encode("utf-16-be", "surrogatepass").hex(" ", 2)
    return "".join(f"\\u{unit}" for unit in units.split())


@cache
def private_folder() -> Path:
    """Make a directory for this process that only its user can enter; its path is short if possible, for sockets."""
    parents = (tempfile.gettempdir(), "/tmp")  # noqa: S108 - mkdtemp makes the directory
    short = (parent for parent in parents if len(os.fsencode(parent)) <= _MOST_PARENT_BYTES)
    return temporary_folder(
        "penstock-", next((parent for parent in short if os.access(parent, os.W_OK)), None)
    )


def socket_folder() -> str | None:
    """Return the private directory for sockets of Python workers; None if its path is too long for a socket."""
    folder = private_folder()
    return str(folder) if len(os.fsencode(folder)) <= _MOST_SOCKET_FOLDER_BYTES else None
