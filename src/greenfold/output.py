"""Files that appear whole or not at all, and streams that are written into."""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

StrPath = str | os.PathLike[str]

OPEN_ALREADY = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/(self|\d+)/fd/\d+")


def write_whole(path: StrPath, data: bytes) -> None:
    """Put all of `data` under a name, or leave what was there."""
    with whole_file(path) as file:
        file.write(data)


@contextlib.contextmanager
def whole_file(path: StrPath) -> Iterator[IO[bytes]]:
    """A file to write, renamed to `path` when all of it is on the disk; after an error nothing remains.

    A link stays one, and what it points to is replaced. Pipes and devices are written into.
    """
    if is_stream(path):
        with open(path, "ab") as file:  # a redirected stream may hold something already
            yield file
        return
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    unfinished = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    file = open(unfinished, "xb")  # noqa: SIM115 (what fails from here on removes it)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(unfinished, stat.S_IMODE(path.stat().st_mode))
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name too
        finally:
            os.close(folder)


def is_stream(path: StrPath) -> bool:
    """Is there a pipe, a device or an open stream by this name, which a file must not replace?"""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    other = not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
    return other or OPEN_ALREADY.fullmatch(os.fspath(path)) is not None


def check_out(out: StrPath, *sources: StrPath | None) -> None:
    """Refuse, before the work, what could not be written after it or would replace its source."""
    if os.fspath(out) == "-" or is_stream(out):
        return
    folder = Path(os.path.realpath(out)).parent
    if not folder.is_dir():
        raise ValueError(f"--out {out}: there is no folder {folder}; make it first.")
    if os.path.isdir(out):
        raise ValueError(f"--out {out} is a folder; name a file in it.")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"--out {out}: the folder {folder} may not be written to.")
    for source in sources:
        if (
            source
            and os.path.exists(source)
            and os.path.exists(out)
            and os.path.samefile(source, out)
        ):
            raise ValueError(f"--out {out} would replace what is read; give it another name.")
