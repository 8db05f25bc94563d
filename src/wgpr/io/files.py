"""Atomic writes: a file is replaced as a whole or stays as it was, also if the program or the machine stops. Locks."""

import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# A disk, a quota or a limit of the size of files is full.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to. At the end of the block that file takes the place of `path` at once.

    A reader of `path` finds the old file or the new one. If the block fails, the old file stays.
    """
    target = check_destination(path)
    temporary = target.with_name(f".{secrets.token_hex(4)}.{target.name}")
    try:
        yield temporary
        _sync(temporary, os.O_RDONLY)
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except OSError as error:
        if error.filename != os.fspath(temporary) and error.errno not in _NO_ROOM:
            raise
        raise cannot_be_written(path, error) from error
    finally:
        with suppress(OSError):  # its name may be too long
            temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file at `path` by `data`, as a whole or not at all."""
    with replace_file(path) as temporary:
        temporary.write_bytes(data)


def cannot_be_written(path: str | os.PathLike[str], error: OSError) -> OSError:
    """The same error with a sentence that names `path`, whatever file beside it was tried first."""
    if error.strerror is None:  # it is a sentence
        return error
    told = type(error)(f"{os.fspath(path)} cannot be written ({error.strerror}); choose another place")
    told.errno = error.errno
    return told


def check_destination(path: str | os.PathLike[str], option: str = "") -> Path:
    """The path with links resolved; raises an error if no file can be written there. Call it before long work.

    option : of a command, that names another place, such as -o.
    """
    elsewhere = f"elsewhere ({option})" if option else "elsewhere"
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent}; make it, or save {target.name} {elsewhere}")
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"nothing can be written to {target.parent}; save {target.name} {elsewhere}")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{target} is not a regular file and would be replaced by one; name another file")
    return target


def check_folder(path: str | os.PathLike[str], remedy: str) -> None:
    """Raise an error if no file can be written to a folder, which may have to be made. Call it before long work."""
    folder = Path(os.path.realpath(path))
    existing = next(filter(os.path.exists, (folder, *folder.parents)), Path(folder.anchor))
    if not existing.is_dir():
        raise NotADirectoryError(f"{existing} is no folder, so that there can be none at {folder}; {remedy}")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"nothing can be written to {existing}; {remedy}")


def sync_folder(folder: Path) -> None:
    """Wait until names in the folder are on the disk."""
    if hasattr(os, "O_DIRECTORY"):  # POSIX
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(lock: Path, message: str) -> Iterator[None]:
    """Hold the lock file `lock`, which other processes see, during the block. Raises `message` if another holds it.

    The operating system releases the lock when the process ends, in whatever way.
    """
    try:
        descriptor = _open_lock(lock, os.O_CREAT)
    except OSError as error:
        raise cannot_be_written(lock.parent / lock.name.removesuffix(".lock").removeprefix("."), error) from error
    try:
        if not _try_lock(descriptor, lock):
            raise BlockingIOError(message)
        try:
            yield
        finally:
            with suppress(OSError):  # Windows does not remove an open file
                lock.unlink()
    finally:
        os.close(descriptor)


def lock_of(path: str | os.PathLike[str]) -> Path:
    """The lock file that a command holds while it writes a file: beside it, links resolved."""
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.lock")


def is_locked(lock: Path) -> bool:
    """Whether a process holds the lock file `lock`. No file is changed."""
    try:
        descriptor = _open_lock(lock)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return not _try_lock(descriptor, lock)
    finally:
        os.close(descriptor)


def _open_lock(lock: Path, flags: int = 0) -> int:
    """A descriptor for writing, because NFS locks no other; for reading, if the file is there and cannot be written."""
    try:
        return os.open(lock, os.O_RDWR | flags, 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not lock.exists():
            raise
        return os.open(lock, os.O_RDONLY)


def _try_lock(descriptor: int, lock: Path) -> bool:
    """Whether the lock was taken; not if another process has just released it and removed the file.

    NFS takes no lock by a descriptor for reading (EBADF). The file is there, so that another user may hold it.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(lock))
    except (BlockingIOError, PermissionError, FileNotFoundError):
        return False
    except OSError as error:  # otherwise the file system has no locks
        return error.errno != errno.EBADF
