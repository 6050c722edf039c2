"""Where the files with a query's results go: a value that travels to tasks."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from penstock.state.output_file import OutputFile


@dataclass(frozen=True, slots=True)
class Destination:
    """A directory for files of results: of a sink, or of the state."""

    root: str
    """The sink's directory, or the state's."""
    compression: str = "snappy"
    folder: str = ""
    """The directory below the state's where files are kept; empty for files that are published."""
    handed_over: bool = False
    """Whether the files are handed over after the commit, and then deleted."""
    shared: bool = False
    """Whether identical files of several queries may be one file, linked."""

    def file(self, name: str) -> OutputFile:
        """Begin a file.

        A published file has the name it will have in its sink.  A kept file gets a unique name, since a task that Spark
        runs twice writes it twice, and readers know it by the commit.
        """
        if self.folder:
            return OutputFile(self.root, f"{self.folder}/{name}-{uuid.uuid4().hex}.parquet", kept=True)
        return OutputFile(self.root, f"{name}.parquet", self.compression)
