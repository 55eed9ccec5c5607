"""
Loads and stores words in byte arrays at any alignment, and the few machine instructions that numba does not offer.

Big-endian is the order of Kafka's files, little-endian that of hash functions. The caller has checked the position; a
bounds-checked build (NUMBA_BOUNDSCHECK=1) checks it again and raises.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cleaner.kernels.compile import jit
from cleaner.kernels.places import BOUNDS_CHECKED

_I8, _I32, _I64, _I128 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.IntType(128)


def _address(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _make_load(width, swapped):
    word = ir.IntType(width)

    @intrinsic
    def load(typing_context, array, index):
        def generate(context, builder, signature, arguments):
            pointer = _address(context, builder, signature.args[0], *arguments)
            value = builder.load(builder.bitcast(pointer, word.as_pointer()))
            value.align = 1
            if swapped:
                value = builder.bswap(value)
            return value if width == 64 else builder.zext(value, _I64)

        return types.uint64(array, types.int64), generate

    return load


def _make_store(width, swapped):
    word = ir.IntType(width)

    @intrinsic
    def store(typing_context, array, index, value):
        def generate(context, builder, signature, arguments):
            pointer = _address(context, builder, signature.args[0], arguments[0], arguments[1])
            word_value = arguments[2] if width == 64 else builder.trunc(arguments[2], word)
            if swapped:
                word_value = builder.bswap(word_value)
            builder.store(word_value, builder.bitcast(pointer, word.as_pointer())).align = 1
            return context.get_dummy_value()

        return types.void(array, types.int64, types.uint64), generate

    return store


def _checked_load(load, size):
    if not BOUNDS_CHECKED:
        return load

    @jit
    def checked(array, index):
        if index < 0 or index + size > array.size:
            raise IndexError("load outside the array")
        return load(array, index)

    return checked


def _checked_store(store, size):
    if not BOUNDS_CHECKED:
        return store

    @jit
    def checked(array, index, value):
        if index < 0 or index + size > array.size:
            raise IndexError("store outside the array")
        store(array, index, value)

    return checked


# For one byte too: indexing would first check whether the position is negative and counts from the end.
load_u8 = _checked_load(_make_load(8, False), 1)
load_u64_le = _checked_load(_make_load(64, False), 8)
load_u64_be = _checked_load(_make_load(64, True), 8)
load_u32_be = _checked_load(_make_load(32, True), 4)
load_u16_be = _checked_load(_make_load(16, True), 2)
store_u64_be = _checked_store(_make_store(64, True), 8)
store_u32_be = _checked_store(_make_store(32, True), 4)
store_u16_be = _checked_store(_make_store(16, True), 2)


@intrinsic
def _copy_bytes(typing_context, target, target_index, source, source_index, size):
    def generate(context, builder, signature, arguments):
        to = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        origin = _address(context, builder, signature.args[2], arguments[2], arguments[3])
        pointer = _I8.as_pointer()
        shape = ir.FunctionType(ir.VoidType(), [pointer, pointer, _I64, ir.IntType(1)])
        memcpy = builder.module.declare_intrinsic("llvm.memcpy.p0.p0.i64", fnty=shape)
        builder.call(memcpy, [to, origin, arguments[4], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


if BOUNDS_CHECKED:

    @jit
    def copy_bytes(target, target_index, source, source_index, size):
        """Copy `size` bytes between two arrays that do not overlap."""
        if size < 0 or target_index < 0 or target_index + size > target.size:
            raise IndexError("copy outside the target")
        if source_index < 0 or source_index + size > source.size:
            raise IndexError("copy outside the source")
        _copy_bytes(target, target_index, source, source_index, size)

else:
    copy_bytes = _copy_bytes


@intrinsic
def prefetch(typing_context, array, index):
    """Prefetch the cache line of `array[index]`; the index must be inside the array."""

    def generate(context, builder, signature, arguments):
        pointer = builder.bitcast(_address(context, builder, signature.args[0], *arguments), _I8.as_pointer())
        shape = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
        instruction = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=shape)
        # for writing, keep in all cache levels, data
        builder.call(instruction, [pointer, *(ir.Constant(_I32, flag) for flag in (1, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def rotate_left(typing_context, value, count):
    """Return a 64-bit word rotated left by `count` bits."""

    def generate(context, builder, signature, arguments):
        shape = ir.FunctionType(_I64, [_I64] * 3)
        funnel = builder.module.declare_intrinsic("llvm.fshl.i64", fnty=shape)
        return builder.call(funnel, [arguments[0], arguments[0], arguments[1]])

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def multiply_high(typing_context, left, right):
    """Return the upper 64 bits of a product of two 64-bit words."""

    def generate(context, builder, signature, arguments):
        product = builder.mul(builder.zext(arguments[0], _I128), builder.zext(arguments[1], _I128))
        return builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def address_of(typing_context, array, index):
    """Return the address of `array[index]`, for a C function; the caller has checked what lies behind it."""

    def generate(context, builder, signature, arguments):
        return builder.ptrtoint(_address(context, builder, signature.args[0], *arguments), _I64)

    return types.int64(array, types.int64), generate


@intrinsic
def call_at(typing_context, address, words):
    """Call the C function at an address with a tuple of pointers, sizes and small numbers; it returns a word."""

    def generate(context, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[1])
        shape = ir.FunctionType(_I64, [_I64] * len(values)).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], shape), values)

    return types.uint64(types.int64, words), generate


@jit
def equal_bytes(first, second, size):
    """Tell whether two arrays begin with the same `size` bytes."""
    at = 0
    while size - at >= 8:
        if load_u64_le(first, at) != load_u64_le(second, at):
            return False
        at += 8
    while at < size:
        if first[at] != second[at]:
            return False
        at += 1
    return True


@intrinsic
def _read_at(typing_context, descriptor, array, index, size, position):
    def generate(context, builder, signature, arguments):
        descriptor, array, index, size, position = arguments
        to = builder.bitcast(_address(context, builder, signature.args[1], array, index), _I8.as_pointer())
        shape = ir.FunctionType(_I64, [_I32, _I8.as_pointer(), _I64, _I64])
        pread = cgutils.get_or_insert_function(builder.module, shape, "pread")
        return builder.call(pread, [builder.trunc(descriptor, _I32), to, size, position])

    return types.int64(types.int64, array, types.int64, types.int64, types.int64), generate


@jit
def read_at(descriptor, array, index, size, position):
    """Read up to `size` bytes of an open file from a position into `array[index:]`; returns the bytes read, or -1."""
    if index < 0 or size < 0 or index + size > array.size:
        return types.int64(-1)
    return _read_at(descriptor, array, index, size, position)
