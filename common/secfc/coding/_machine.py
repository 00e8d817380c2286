"""Machine code of the kernels: loaded by LLVM, called through ctypes. numba, which made it, is not needed.

A compiled function takes the address for its result, one for an exception, and its arguments; an array as (owner, parent,
elements, bytes per element, address, lengths, strides). It trusts them, so here every array is checked before it is called.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np

_SCALARS = {
    "int64": (ctypes.c_int64, int),
    "uint32": (ctypes.c_uint32, int),
    "uint16": (ctypes.c_uint16, int),
    "uint8": (ctypes.c_uint8, int),
    "boolean": (ctypes.c_uint8, bool),
    "float64": (ctypes.c_double, float),
}
_CONTIGUOUS, _ALIGNED, _WRITABLE = 0x1, 0x100, 0x400  # of `ndarray.flags.num`, as NumPy's C API has them
_ALIASES = {"words": ("uint64", "[::1]")}  # read-only
_SPLIT = re.compile(r"(\w+)(\[[^\]]*\])?")
_engines: list[Any] = []  # code is unmapped with its engine


class Entry(NamedTuple):
    """One compiled version of a kernel."""

    name: str
    signature: str
    symbol: str


class Argument(NamedTuple):
    """What one argument must be; a scalar has no dimensions."""

    kind: str
    dimensions: int = 0
    contiguous: bool = False
    writable: bool = True


@cache
def parse(signature: str) -> tuple[str, tuple[Argument, ...]]:
    """What a signature in numba's notation returns and takes."""
    (result, _), *rest = _SPLIT.findall(signature)
    return result, tuple(_argument(kind, shape) for kind, shape in rest)


def _argument(kind: str, shape: str) -> Argument:
    known, shape = _ALIASES.get(kind, (kind, shape))
    dimensions = shape.count(",") + 1 if shape else 0
    return Argument(known, dimensions, "::1" in shape, kind not in _ALIASES)


# --- LLVM ------------------------------------------------------------------------------------------------------------


def processor() -> tuple[str, str]:
    """The processor to compile for and its features; numba's setting for another one is heeded."""
    chosen = os.environ.get("NUMBA_CPU_NAME")
    if chosen:
        return chosen, os.environ.get("NUMBA_CPU_FEATURES", "")
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def target() -> Any:
    """What LLVM makes code for."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = processor()
    made = llvm.Target.from_triple(llvm.get_process_triple())
    return made.create_target_machine(cpu=name, features=features, opt=3, jit=True, codemodel="jitdefault")


def load(entries: Sequence[Entry], code: bytes) -> dict[str, Callable[..., Any]]:
    """The kernels of an object file, by name."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    versions: dict[str, list[Any]] = {}
    for name, signature, symbol in entries:
        versions.setdefault(name, []).append(_version(signature, engine.get_function_address(symbol)))
    return {name: _kernel(name, made) for name, made in versions.items()}


# --- calls -----------------------------------------------------------------------------------------------------------


def _kernel(name: str, versions: list[Any]) -> Callable[..., Any]:
    """A function that calls the first version that takes what it is given."""

    def call(*values: Any) -> Any:
        for count, convert, run in versions:
            if len(values) == count and (arguments := convert(values)) is not None:
                return run(arguments)
        given = ", ".join(
            f"{v.dtype}{list(v.shape)}" if isinstance(v, np.ndarray) else type(v).__name__ for v in values
        )
        raise TypeError(f"no version of kernel {name} takes ({given})")

    call.__name__ = name
    return call


def _version(signature: str, address: int) -> Any:
    result, arguments = parse(signature)
    types: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]
    for one in arguments:
        if one.dimensions:
            types += (
                [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2 + [ctypes.c_void_p] + [ctypes.c_int64] * 2 * one.dimensions
            )
        else:
            types.append(_SCALARS[one.kind][0])
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(address)
    takes = [_array(one) if one.dimensions else _scalar(_SCALARS[one.kind][1]) for one in arguments]

    def convert(values: Sequence[Any]) -> list[Any] | None:
        out: list[Any] = []
        for take, value in zip(takes, values, strict=True):
            if not take(value, out):
                return None
        return out

    def run(arguments: list[Any]) -> Any:
        answer, error = ctypes.c_int64(), ctypes.c_void_p()
        if function(ctypes.addressof(answer), ctypes.addressof(error), *arguments):
            raise RuntimeError(f"a kernel failed: {signature}")
        return answer.value if result == "int64" else None

    return len(arguments), convert, run


def _array(wanted: Argument) -> Callable[[Any, list[Any]], bool]:
    dtype = np.dtype("bool" if wanted.kind == "boolean" else wanted.kind)
    flags = _ALIGNED | (_CONTIGUOUS if wanted.contiguous else 0) | (_WRITABLE if wanted.writable else 0)

    def take(value: Any, out: list[Any]) -> bool:
        if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != wanted.dimensions:
            return False
        if value.flags.num & flags != flags:
            return False
        out += (None, None, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides)
        return True

    return take


def _scalar(convert: type[int] | type[float]) -> Callable[[Any, list[Any]], bool]:
    fitting = (int, np.integer, np.bool_, *((float, np.floating) if convert is float else ()))

    def take(value: Any, out: list[Any]) -> bool:
        if not isinstance(value, fitting):
            return False
        out.append(convert(value))
        return True

    return take
