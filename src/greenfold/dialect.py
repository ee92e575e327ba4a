"""How a csv file is written, told from its beginning: encoding, delimiter, decimal sign, names."""

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

DELIMITERS = ",;\t|"
FEW, MANY = 50, 20_000  # lines from which the delimiter is told, and what cells are like
WITH_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
WITH_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?")
BASE_16 = re.compile(r"\s*0[xX][0-9a-fA-F]+\s*")
THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")


@dataclass(frozen=True)
class Dialect:
    """What the reader must be told, and what there is to say."""

    encoding: str
    delimiter: str
    decimal: str
    names: list[str]  # without blanks around them; columns without a name are counted
    skip: int  # empty lines, and the one with the names
    has_rows: bool
    text: set[str]  # columns that hold numbers to the base 16, which are names of something
    notes: list[str]

    @staticmethod
    def of(start: bytes, whole: bool) -> "Dialect":
        """From the first bytes of a file, which may be all of it."""
        encoding = _encoding(start, whole)
        text = codecs.getincrementaldecoder(encoding)().decode(start).removeprefix("\ufeff")
        lines = io.StringIO(text, newline="").readlines()
        lines = lines if whole or len(lines) < 2 else lines[:-1]  # the last one is cut
        blank = next((i for i, line in enumerate(lines) if line.strip("\r\n")), len(lines))
        lines = lines[blank:]
        if not "".join(lines).strip():
            raise ValueError("it holds nothing but empty lines.")
        delimiter = _delimiter(lines[:FEW])
        rows = list(_rows(lines[:MANY], delimiter))
        if not rows:
            raise ValueError("its first line is not the names of columns.")
        header, body = rows[0], rows[1:]
        decimal, example = _decimal(body, delimiter)
        notes = []
        if encoding == "cp1252":
            notes.append("it is not UTF-8 text; read as Windows-1252 (Latin-1)")
        if all(NUMBER.fullmatch(name.strip()) for name in header):
            if len(set(header)) < len(header):
                raise ValueError(
                    "its first line holds numbers; put the names of the columns above."
                )
            notes.append("its first line is taken as the names of the columns, but holds numbers")
        if decimal == ",":
            read = example.strip().replace(",", ".")
            notes.append(f"decimal commas: {example.strip()} is read as {read}")
        names = [name.strip() or f"unnamed{j}" for j, name in enumerate(header)]
        has_rows = not whole or any(body)
        cells = ((name, cell) for row in body for name, cell in zip(names, row))
        as_text = {name for name, cell in cells if "x" in cell.lower() and BASE_16.fullmatch(cell)}
        return Dialect(encoding, delimiter, decimal, names, blank + 1, has_rows, as_text, notes)


def _rows(lines: list[str], delimiter: str) -> Iterator[list[str]]:
    """As far as lines can be parted into cells."""
    with contextlib.suppress(csv.Error):
        yield from csv.reader(lines, delimiter=delimiter)


def _encoding(start: bytes, whole: bool) -> str:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start:
        raise ValueError("it holds binary data, not text.")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start, final=whole)
        return "utf-8"
    except UnicodeDecodeError:
        pass
    try:
        start.decode("cp1252")
        return "cp1252"
    except UnicodeDecodeError:
        raise ValueError(
            "it is neither UTF-8 nor Windows-1252 text; save it as UTF-8 first."
        ) from None


def _delimiter(lines: list[str]) -> str:
    """What parts all lines into as many cells; failing that, the first line into most."""
    cells = {d: [len(row) for row in _rows(lines, d) if row] or [0] for d in DELIMITERS}
    return max(DELIMITERS, key=lambda d: (len(set(cells[d])) == 1 < cells[d][0], cells[d][0]))


def _decimal(rows: Iterable[list[str]], delimiter: str) -> tuple[str, str]:
    """The decimal sign, and a number that shows it if it is the comma.

    A comma before three digits may part thousands: without other evidence it does so between tabs, but
    not between semicolons, which are used where the comma is taken.
    """
    example = ""
    for row in rows if delimiter != "," else ():
        for cell in row:
            if WITH_POINT.fullmatch(cell):
                return ".", ""
            clear = delimiter == ";" or not THOUSANDS.fullmatch(cell)
            if not example and WITH_COMMA.fullmatch(cell) and clear:
                example = cell
    return (",", example) if example else (".", "")
