"""Rows times coefficients, reduced, in one pass: the inner loop of a client's round.

BLAS would do the product alone, but for a dozen columns it spends as long on copying its operands as on multiplying, and
the reduction needs a second pass. Here a tile of R rows × 4·V columns stays in registers from the first multiplication to
the stored residue. Exact like BLAS: every partial sum is an integer of magnitude at most 2^53, fused or not.

numba does not vectorise such a tile by itself, so it is written as LLVM vectors, which suit every processor LLVM knows.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from secfc.coding._compiling import compiled

_LANES = 4  # float64 values in a vector
_DOUBLE, _I64, _I32 = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_VECTOR, _VECTOR_I32 = ir.VectorType(_DOUBLE, _LANES), ir.VectorType(_I32, _LANES)
_WIDE, _NARROW = 2 * _LANES, _LANES


def _function(builder: Any, name: str, arguments: int) -> Any:
    full = f"llvm.{name}.v{_LANES}f64"
    known = builder.module.globals.get(full)
    return known or ir.Function(builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * arguments), full)


def _emit(builder: Any, args: Any, rows: int, vectors: int) -> None:
    """LLVM code of one tile: out[r, :] <- Σ_k x[r, k] · f[k, :] mod p, in [0, p)."""
    x, x_stride, f, f_stride, inner, p, inverse, out, out_stride = args
    zero = ir.Constant(_VECTOR, [0.0] * _LANES)
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    grid = [(r, v) for r in range(rows) for v in range(vectors)]

    def at(base: Any, offset: Any, kind: Any) -> Any:
        return builder.inttoptr(builder.add(base, offset), kind.as_pointer())

    def spread(scalar: Any) -> Any:
        single = builder.insert_element(undefined, scalar, _I32(0))
        return builder.shuffle_vector(single, undefined, ir.Constant(_VECTOR_I32, [0] * _LANES))

    multiply_add, rint = _function(builder, "fmuladd", 3), _function(builder, "rint", 1)
    entry, loop, done = builder.block, builder.append_basic_block("terms"), builder.append_basic_block("reduce")
    builder.branch(loop)
    builder.position_at_end(loop)
    k, row_f = builder.phi(_I64), builder.phi(_I64)
    sums = {place: builder.phi(_VECTOR) for place in grid}
    factors = [builder.load(at(row_f, _I64(8 * _LANES * v), _VECTOR), align=8) for v in range(vectors)]
    shares = [
        spread(
            builder.load(at(builder.add(x, builder.mul(x_stride, _I64(r))), builder.shl(k, _I64(3)), _DOUBLE), align=8)
        )
        for r in range(rows)
    ]
    added = {(r, v): builder.call(multiply_add, [shares[r], factors[v], sums[r, v]]) for r, v in grid}
    following = builder.add(k, _I64(1))
    for phi, first, later in [(k, _I64(0), following), (row_f, f, builder.add(row_f, f_stride))]:
        phi.add_incoming(first, entry)
        phi.add_incoming(later, loop)
    for place in grid:
        sums[place].add_incoming(zero, entry)
        sums[place].add_incoming(added[place], loop)
    builder.cbranch(builder.icmp_signed("<", following, inner), loop, done)
    builder.position_at_end(done)
    primes, inverses = spread(p), spread(inverse)
    for r, v in grid:
        value = added[r, v]
        value = builder.fsub(value, builder.fmul(builder.call(rint, [builder.fmul(value, inverses)]), primes))
        value = builder.select(builder.fcmp_ordered("<", value, zero), builder.fadd(value, primes), value)
        target = at(builder.add(out, builder.mul(out_stride, _I64(r))), _I64(4 * _LANES * v), _VECTOR_I32)
        builder.store(builder.fptosi(value, _VECTOR_I32), target, align=4)


def _tile(rows: int, vectors: int) -> Any:
    signature = types.void(*[types.intp] * 5, types.float64, types.float64, types.intp, types.intp)

    def tile(
        typingctx: Any,
        x: Any,
        x_stride: Any,
        f: Any,
        f_stride: Any,
        inner: Any,
        p: Any,
        inverse: Any,
        out: Any,
        out_stride: Any,
    ) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            _emit(builder, args, rows, vectors)
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(tile)


_tile_6x8, _tile_8x4, _tile_1x8, _tile_1x4 = _tile(6, 2), _tile(8, 1), _tile(1, 2), _tile(1, 1)


@compiled("void(float64[:, ::1], float64[:, ::1], float64, uint32[:, ::1], int64)")
def _product(x: Any, f: Any, p: float, out: Any, offset: int) -> None:
    rows, inner = x.shape
    width = f.shape[1]
    inverse = 1.0 / p
    xs, fs, os = 8 * inner, 8 * width, 4 * out.shape[1]
    x0, f0, o0 = x.ctypes.data, f.ctypes.data, out.ctypes.data + 4 * offset
    wide = width // 8 * 8
    i = 0
    while i + 6 <= rows:
        for c in range(0, wide, 8):
            _tile_6x8(x0 + i * xs, xs, f0 + 8 * c, fs, inner, p, inverse, o0 + i * os + 4 * c, os)
        i += 6
    for r in range(i, rows):
        for c in range(0, wide, 8):
            _tile_1x8(x0 + r * xs, xs, f0 + 8 * c, fs, inner, p, inverse, o0 + r * os + 4 * c, os)
    if wide < width:
        i = 0
        while i + 8 <= rows:
            _tile_8x4(x0 + i * xs, xs, f0 + 8 * wide, fs, inner, p, inverse, o0 + i * os + 4 * wide, os)
            i += 8
        for r in range(i, rows):
            _tile_1x4(x0 + r * xs, xs, f0 + 8 * wide, fs, inner, p, inverse, o0 + r * os + 4 * wide, os)


@compiled("void(float64[:, ::1], float64[:, ::1], float64, uint32[:, ::1], int64, int64, uint32[:, ::1])")
def product(x: Any, f: Any, p: float, out: Any, offset: int, columns: int, scratch: Any) -> None:
    """out[:, offset:offset+columns] <- (x @ f)[:, :columns] mod p, in [0, p).

    Pre-condition: f is filled up with zeros to a multiple of four columns, as wide as scratch; x has 1 to 8192 columns.
    """
    if f.shape[1] == columns:
        _product(x, f, p, out, offset)
        return
    _product(x, f, p, scratch, 0)
    for i in range(x.shape[0]):
        for c in range(columns):
            out[i, offset + c] = scratch[i, c]
