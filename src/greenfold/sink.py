"""Results back to files and pipes."""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from greenfold.output import is_stream, whole_file
from greenfold.rows import ENDINGS

FORMATS = ("csv", "json", "parquet", "arrow", "npy")


class Sink:
    """Where results go: a file by its ending, or a pipe as CSV or, on request, JSON lines."""

    def __init__(self, path: str, as_json: bool = False):
        self.path, self.piped = path, path == "-" or is_stream(path)
        kinds = ENDINGS | {".json": "json", ".jsonl": "json"}
        known = kinds.get(Path(path).suffix.lower(), "csv" if self.piped else "")
        self.format = "json" if as_json else known
        if self.format not in FORMATS:
            raise ValueError(f"{path} must end in .csv, .json, .parquet, .arrow or .npy.")
        self.writer: Any = None
        self.kept: list[Any] = []
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> "Sink":
        """What is begun appears under its name when it is whole, and not at all after an error."""
        self.file: IO[bytes] = (
            sys.stdout.buffer
            if self.path == "-"
            else self.stack.enter_context(whole_file(self.path))
        )
        # binary formats ask where they are, which a pipe does not know
        whole = self.piped and self.format not in ("csv", "json")
        self.body: IO[bytes] = io.BytesIO() if whole else self.file
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            try:
                self._finish()
            except BaseException:
                self.stack.__exit__(*sys.exc_info())
                raise
        self.stack.__exit__(*error)

    def write(self, columns: dict[str, Any]) -> None:
        """A batch of results, columns by name."""
        table = pa.table({k: pa.array(np.asarray(v)) for k, v in columns.items()})
        if self.format == "npy":
            self.kept.append(np.stack([c.to_numpy() for c in table.columns], axis=1))
        elif self.format == "json":
            lines = (
                json.dumps(_finite(row), ensure_ascii=False) + "\n" for row in table.to_pylist()
            )
            self.body.write("".join(lines).encode())
        else:
            if self.writer is None:
                make = {
                    "csv": pa.csv.CSVWriter,
                    "parquet": pa.parquet.ParquetWriter,
                    "arrow": pa.ipc.new_file,
                }[self.format]
                self.writer = make(self.body, table.schema)
            self.writer.write_table(table)
        if self.piped:
            self.body.flush()

    def _finish(self) -> None:
        if self.writer is not None:
            self.writer.close()
        if self.kept:
            values = np.concatenate(self.kept)
            np.save(self.body, values[:, 0] if values.shape[1] == 1 else values)
        if self.body is not self.file:
            self.body.seek(0)
            self.file.write(self.body.read())
        self.file.flush()


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v if v == v else None for k, v in row.items()}
