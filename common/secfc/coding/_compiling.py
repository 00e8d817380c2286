"""From Python to machine code: what the modules of kernels are written with, and the object file that comes of them.

numba compiles, once per machine. Only `kernels` imports this module, and only then: numba takes longer to import than a small
job to run. `_machine` calls what is compiled here, without numba.

A kernel works on plain arrays, allocates nothing but `room` and raises nothing: then its code needs no run-time library.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeVar, cast

import llvmlite.binding as llvm
import numba
from numba.core import cgutils
from numba.extending import intrinsic

from secfc.coding import _machine
from secfc.coding._machine import Entry

_numba: Any = numba  # half of what is used here has no types
_unpacked: Any = cgutils.unpack_tuple
_F = TypeVar("_F", bound=Callable[..., Any])
_MODULES = (
    "_kernels",
    "_decoding",
    "_clusters",
    "_pairs",
    "_product",
    "_tables",
    "_sealed_forms",
    "_sealed_streams",
    "_sealed_tests",
)
_OF_C = {"memcpy", "memmove", "memset", "sqrt"}  # every process has these
# What only reads words also takes those of a received message, which Python holds read-only.
_NAMES = {"words": _numba.types.Array(_numba.uint64, 1, "C", readonly=True)} | vars(_numba.types)
_LLVM = {"float64": "double", "float32": "float", "boolean": "i8"} | {
    f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
# numba frees an array with its owner, if it has one; none has here.
_NO_OWNERS = "define void @NRT_MemInfo_call_dtor(ptr %owner) { ret void }"
_made: dict[str, tuple[tuple[str, ...], Any]] = {}
_bare = {"nogil": True, "boundscheck": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(*signatures: str) -> Callable[[_F], _F]:
    """A kernel, compiled for these types; of several that fit, the first one is taken."""
    names: dict[str, Any] = {"__builtins__": {}}
    typed = [eval(text, names, _NAMES) for text in signatures]  # noqa: S307 - our own literals, in numba's notation

    def decorate(function: _F) -> _F:
        made = _numba.njit(typed, **_bare)(function)
        _made[function.__name__] = signatures, made
        return cast("_F", made)

    return decorate


inlined = cast("Callable[[_F], _F]", _numba.njit(nogil=True, inline="always"))
# Loops that become vectors only if they are compiled by themselves: in one function LLVM cannot tell their arrays apart.
alone = cast("Callable[[_F], _F]", _numba.njit(**_bare))
# The same, and sums may be added up in any order: only for those that are exact in every order.
reordered = cast("Callable[[_F], _F]", _numba.njit(fastmath={"reassoc", "contract"}, **_bare))


def _reserve(typingctx: Any, shape: Any, dtype: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        count = reduce(builder.mul, _unpacked(builder, args[0]))
        return builder.alloca(context.get_data_type(dtype.dtype), count)

    sizes = _numba.types.UniTuple(_numba.types.intp, len(shape))
    return _numba.types.CPointer(dtype.dtype)(sizes, dtype), codegen


_stack: Any = intrinsic(_reserve)


@inlined
def room(shape: Any, dtype: Any) -> Any:
    """A small array of a kernel's own, not set to anything: on the stack until the kernel returns, so never in a loop."""
    return _numba.carray(_stack(shape, dtype), shape)


def _locate(typingctx: Any, array: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.make_array(array)(context, builder, args[0]).data

    return _numba.types.CPointer(array.dtype)(array), codegen


_address: Any = intrinsic(_locate)


@inlined
def flattened(array: Any) -> Any:
    """A contiguous array as one row. numba's own `reshape` calls its run-time library."""
    return _numba.carray(_address(array), (array.size,))


def compile_all() -> tuple[list[Entry], bytes]:
    """All kernels, as entries and the object file they are in."""
    for name in _MODULES:
        importlib.import_module(f"secfc.coding.{name}")
    whole = llvm.parse_assembly(_NO_OWNERS)
    entries = []
    for name, (signatures, dispatcher) in _made.items():
        for signature, types in zip(signatures, dispatcher.signatures, strict=True):
            symbol = dispatcher.overloads[types].fndesc.llvm_func_name
            module = llvm.parse_assembly(dispatcher.inspect_llvm(types))
            _check(name, signature, module.get_function(symbol))
            whole.link_in(module)
            entries.append(Entry(name, signature, symbol))
    missing = {f.name for f in whole.functions if f.is_declaration and not f.name.startswith("llvm.")} - _OF_C
    if missing:
        raise RuntimeError(f"kernels need functions that are missing without numba: {', '.join(sorted(missing))}")
    return entries, _machine.target().emit_object(whole)


def _check(name: str, signature: str, function: Any) -> None:
    """numba takes arrays apart into the arguments of a function; `_machine` relies on how."""
    expected = ["ptr", "ptr"]
    for one in _machine.parse(signature)[1]:
        if one.dimensions:
            expected += ["ptr", "ptr", "i64", "i64", "ptr"] + ["i64"] * 2 * one.dimensions
        else:
            expected.append(_LLVM[one.kind])
    found = ["ptr" if "*" in str(a.type) else str(a.type) for a in function.arguments]
    if found != expected:
        raise RuntimeError(f"{name}: this numba passes arguments differently: {found} instead of {expected}")
