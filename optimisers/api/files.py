"""One file for a flat mapping of arrays, numbers and strings: safetensors, atomic, checked.

Arrays are tensors of the file; numbers and strings are JSON in its header. The checksum covers
both, so that a flipped bit is an error and not another number.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import MissingLibraryError, StateError

FORMAT = "optimisers 1"
# What every reader of the format knows; arrays of other dtypes are stored as their bytes.
PLAIN = {
    "F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32",
    "U64": "uint64", "BOOL": "bool",
}  # fmt: skip


def write(file: str | os.PathLike[str], found: Mapping[str, Any]) -> None:
    """Write a mapping to a file, all of it or nothing.

    Raises:
        MissingLibraryError: safetensors is not installed.
        OSError: the file cannot be written; what was there is still there.
    """
    library = _library()
    arrays = {k: np.ascontiguousarray(v) for k, v in found.items() if isinstance(v, np.ndarray)}
    arrays = {k: v.reshape(found[k].shape) for k, v in arrays.items()}
    stored = {key: _plain(a) for key, a in arrays.items()}
    head = {
        "values": {k: _json(v) for k, v in found.items() if k not in arrays},
        "arrays": {k: [str(a.dtype), list(a.shape)] for k, a in arrays.items()},
    }
    text = json.dumps(head, sort_keys=True)
    metadata = {"format": FORMAT, "head": text, "checksum": _checksum(text, stored)}
    path = Path(os.path.realpath(file))  # a link stays a link
    if path.exists() and not path.is_file():
        raise OSError(f"cannot write {file}: it is not a regular file")
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        try:
            library.numpy.save_file(stored, part, metadata)
        except library.SafetensorError as error:
            raise OSError(f"cannot write {file}: {error}") from error
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        if path.exists():
            part.chmod(path.stat().st_mode)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Let the new name reach the disk too; where folders cannot be opened, it is on its own."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)


def read(file: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the mapping that a file holds, after checking all of it.

    Raises:
        MissingLibraryError: safetensors is not installed.
        StateError: the file is cut short, damaged, or of another kind.
        OSError: the file cannot be read.
    """
    library = _library()
    data = Path(file).read_bytes()
    try:
        tensors = dict(library.deserialize(data))
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__") or {}
    except (library.SafetensorError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise StateError(
            f"cannot load {file}: it is cut short, damaged, or no safetensors file ({error})"
        ) from None
    if metadata.get("format") != FORMAT:
        got = metadata.get("format", "nothing")
        raise StateError(
            f"cannot load {file}: it was not written by optimisers.save, or by a newer version; "
            f"its format is {got!r}, expected {FORMAT!r}"
        )
    try:
        stored = {key: _array(one) for key, one in tensors.items()}
        text = metadata["head"]
        right = metadata["checksum"] == _checksum(text, stored)
        head = json.loads(text) if right else {}
        arrays = {k: _restored(stored[k], *kind) for k, kind in head.get("arrays", {}).items()}
        values = dict(head.get("values", {}))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"cannot load {file}: it is damaged ({error})") from None
    if not right:
        raise StateError(f"cannot load {file}: it is damaged, its checksum is wrong")
    return {**values, **arrays}


def _array(one: Mapping[str, Any]) -> Any:
    dtype = np.dtype(PLAIN[one["dtype"]]).newbyteorder("<")
    flat = np.frombuffer(one["data"], dtype) if one["data"] else np.zeros(0, dtype)
    return flat.reshape(one["shape"])


def _plain(a: Any) -> Any:
    little = a.astype(a.dtype.newbyteorder("<"), copy=False)
    return little if str(a.dtype) in PLAIN.values() else little.reshape(-1).view(np.uint8)


def _restored(a: Any, dtype: str, shape: list[int]) -> Any:
    kind = jnp.dtype(dtype)
    return np.array(a if a.dtype == kind else a.view(kind)).reshape(shape).astype(kind, copy=False)


def _json(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _checksum(text: str, stored: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=32)
    for key in sorted(stored):
        a: Any = np.ascontiguousarray(stored[key])
        digest.update(f"\n{key} {a.dtype.str} {a.shape} ".encode())
        digest.update(a.reshape(-1).view(np.uint8))
    return digest.hexdigest()


def _library() -> ModuleType:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise MissingLibraryError(
            'saving needs safetensors; install it with: python -m pip install "optimisers[save]"'
        ) from None
    return safetensors
