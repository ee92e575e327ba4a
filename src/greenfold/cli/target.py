"""What is to be predicted: which column, numbers or classes, and what to say about it before the work."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from greenfold.rows import is_known, known_rows, target_column
from greenfold.table import (
    MANY,
    TIMES,
    Column,
    is_text,
    listed,
    numbers,
    stray_texts,
    time_kind,
    value_counts,
)

TASKS = {
    "regression": "IGLRegressor",
    "classification": "IGLClassifier",
    "reconstruction": "IGLAutoencoder",
}


class Problem(NamedTuple):
    """Columns to learn from, y, the task, and what there is to say about them."""

    frame: pa.Table
    y: Any
    task: str
    notes: list[str]
    known: int | None = None  # rows with a target, the first ones, if there are others


def problem(table: pa.Table, target: str | None, task: str, unlabeled: bool = False) -> Problem:
    """The target by its name, and the task as given or as the target suggests.

    Rows without a target are left out unless `unlabeled`: then they come last.
    """
    check_task(target, task)
    if target is None:
        return Problem(table, None, task, [])
    frame, values, notes = known_target(table, target)
    if not len(values):
        raise ValueError(f"no row has a value of {target}, the target.")
    labels = is_text(values.type) or pa.types.is_boolean(values.type)
    n_values = len(pc.unique(values))
    if task == "auto":
        if is_text(values.type):
            refuse_names(values, target)
        few = pa.types.is_integer(values.type) and n_values <= min(MANY, len(values) / 10)
        task = "classification" if labels or few else "regression"
        if few:
            notes.append(
                f"{target} holds {n_values} different whole numbers, taken as classes; "
                "--task regression for numbers"
            )
    if task == "regression" and is_text(values.type):
        shown = listed(pc.unique(values).to_pylist(), 3)
        raise ValueError(f"--task regression needs numbers, and {target} holds text: {shown}.")
    if n_values == 1 and task == "regression":
        notes.append(f"{target} is always {values[0].as_py()!r}: there is nothing to learn")
    y = values.to_numpy()
    y = y.astype(np.float64) if task == "regression" else y
    if not unlabeled or len(y) == len(table):
        return Problem(frame, y, task, notes)
    others = numbered(*target_column(table, target), target)
    rest = others[0].filter(pc.invert(is_known(others[1])))
    notes[-1] = f"{len(rest)} rows have no target; the others tell it, these what columns look like"
    missing = np.full(len(rest), np.nan) if task == "regression" else [None] * len(rest)
    both = np.concatenate([y if task == "regression" else y.astype(object), missing])
    return Problem(pa.concat_tables([frame, rest]), both, task, notes, len(y))


def check_task(target: str | None, task: str) -> None:
    if task not in ("auto", *TASKS):
        raise ValueError(f"--task must be auto, {', '.join(TASKS)}, got {task!r}.")
    if target is None and task != "reconstruction":
        raise ValueError("--target is missing: which column is to be predicted?")
    if target is not None and task == "reconstruction":
        raise ValueError("--task reconstruction rebuilds the columns and takes no --target.")


def known_target(table: pa.Table, target: str) -> tuple[pa.Table, pa.ChunkedArray, list[str]]:
    """Rows with a target, and their targets."""
    frame, values, notes = numbered(*target_column(table, target), target)
    frame, values, lost = known_rows(frame, values)
    if lost:
        notes.append(f"{lost} rows left out, their target is missing")
    return frame, values, notes


def numbered(
    frame: pa.Table, values: pa.ChunkedArray, target: str
) -> tuple[pa.Table, pa.ChunkedArray, list[str]]:
    """Times, and numbers with a few strange texts, as numbers."""
    if pa.types.is_dictionary(values.type):
        values = pc.cast(values, values.type.value_type)
    notes = []
    strays = stray_texts(values) if is_text(values.type) else ()
    time = time_kind(str(values.type))
    if strays or time:
        notes.append(
            f"{target}: {TIMES[time]}" if time else f"{target}: {listed(strays)} taken as missing"
        )
        column = Column(target, str(values.type), strays=strays)
        values = pa.chunked_array([numbers(values, column)])
    return frame, values, notes


def refuse_names(values: pa.ChunkedArray, target: str) -> None:
    """Text that names rows rather than classes: most of them have one of their own."""
    counts = value_counts(pc.cast(values, pa.string()))
    alone = [value for value, count in counts.items() if count == 1]
    if 2 * len(alone) > len(values):
        raise ValueError(
            f"{target} holds text, and {len(alone)} of {len(values)} rows have one of their own: "
            f"{listed(alone, 3)}. These are no classes to learn. If they are numbers, write them as "
            "1234.5, without other signs; if they are classes, say --task classification."
        )
