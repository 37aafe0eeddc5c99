"""Flash attention in Triton, compiled offline for gfx1100 to calibrate gpu_model.py (calibrate.py).

Algorithms and tile sizes are copied from kernels whose rates are published: Triton's tutorial 06 and aiter's
prefill. Tensors are (batch and head, token, element), and lengths are multiples of the tiles.
"""

import json
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add_keys(acc, top, total, query, k, v, first, last, row, scale, SIZE: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr):
    for start in range(first, last, KEYS):
        key = start + tl.arange(0, KEYS)
        element = tl.arange(0, SIZE)
        scores = tl.dot(query, tl.load(k + key[None, :] * SIZE + element[:, None]))
        if MASKED:
            scores = tl.where(row[:, None] >= key[None, :], scores, -1e30)
        new = tl.maximum(top, tl.max(scores, 1) * scale)
        p = tl.math.exp2(scores * scale - new[:, None])
        shrink = tl.math.exp2(top - new)
        total = total * shrink + tl.sum(p, 1)
        value = tl.load(v + key[:, None] * SIZE + element[None, :])
        acc = tl.dot(p.to(value.dtype), value, acc * shrink[:, None])
        top = new
    return acc, top, total


@triton.jit
def attend(q, k, v, o, lse, scale, tokens, SIZE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * tokens * SIZE
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = head + row[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    query = tl.load(q + at)
    top = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, SIZE], tl.float32)
    unmasked = tl.program_id(0) * ROWS if CAUSAL else tokens
    acc, top, total = add_keys(acc, top, total, query, k + head, v + head, 0, unmasked, row, scale, SIZE, KEYS, False)
    if CAUSAL:
        acc, top, total = add_keys(acc, top, total, query, k + head, v + head, unmasked, unmasked + ROWS, row, scale, SIZE, KEYS, True)
    tl.store(o + at, (acc / total[:, None]).to(o.dtype.element_ty))
    tl.store(lse + tl.program_id(1) * tokens + row, top + tl.math.log2(total))


@triton.jit
def add_key_gradients(dk, dv, key_tile, value_tile, q, do, lse, delta, first, last, key, SIZE: tl.constexpr, ROWS: tl.constexpr,
                      MASKED: tl.constexpr):
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        element = tl.arange(0, SIZE)
        query_t = tl.load(q + row[None, :] * SIZE + element[:, None])
        p = tl.math.exp2(tl.dot(key_tile, query_t) - tl.load(lse + row)[None, :])
        if MASKED:
            p = tl.where(row[None, :] >= key[:, None], p, 0.0)
        grad = tl.load(do + row[:, None] * SIZE + element[None, :])
        dv = tl.dot(p.to(grad.dtype), grad, dv)
        dp = tl.dot(value_tile, tl.trans(grad))
        ds = p * (dp - tl.load(delta + row)[None, :])
        dk = tl.dot(ds.to(grad.dtype), tl.trans(query_t), dk)
    return dk, dv


@triton.jit
def add_query_gradients(dq, query, grad, k, v, lse, delta, first, last, row, SIZE: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr):
    for start in range(first, last, KEYS):
        key = start + tl.arange(0, KEYS)
        at = key[None, :] * SIZE + tl.arange(0, SIZE)[:, None]
        key_t = tl.load(k + at)
        p = tl.math.exp2(tl.dot(query, key_t) - lse[:, None])
        if MASKED:
            p = tl.where(row[:, None] >= key[None, :], p, 0.0)
        ds = p * (tl.dot(grad, tl.load(v + at)) - delta[:, None])
        dq = tl.dot(ds.to(query.dtype), tl.trans(key_t), dq)
    return dq


@triton.jit
def attend_back(q, k, v, do, dq, dk, dv, lse, delta, scale, tokens, SIZE: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr):
    """Computes the gradients of causal attention: each program computes dk and dv of TILE keys, then dq of TILE queries."""
    head = tl.program_id(1).to(tl.int64) * tokens * SIZE
    lse += tl.program_id(1) * tokens
    delta += tl.program_id(1) * tokens
    start = tl.program_id(0) * TILE
    index = start + tl.arange(0, TILE)
    at = head + index[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    key_tile = tl.load(k + at)
    value_tile = tl.load(v + at)
    dk_sum = tl.zeros([TILE, SIZE], tl.float32)
    dv_sum = tl.zeros([TILE, SIZE], tl.float32)
    dk_sum, dv_sum = add_key_gradients(dk_sum, dv_sum, key_tile, value_tile, q + head, do + head, lse, delta, start, start + TILE, index,
                                       SIZE, STEP // 2, True)
    dk_sum, dv_sum = add_key_gradients(dk_sum, dv_sum, key_tile, value_tile, q + head, do + head, lse, delta, start + TILE, tokens, index,
                                       SIZE, STEP, False)
    tl.store(dv + at, dv_sum.to(dv.dtype.element_ty))
    tl.store(dk + at, (dk_sum * scale).to(dk.dtype.element_ty))
    query = tl.load(q + at)
    grad = tl.load(do + at)
    row_lse = tl.load(lse + index)
    row_delta = tl.load(delta + index)
    dq_sum = tl.zeros([TILE, SIZE], tl.float32)
    dq_sum = add_query_gradients(dq_sum, query, grad, k + head, v + head, row_lse, row_delta, start, start + TILE, index, SIZE, STEP // 2, True)
    dq_sum = add_query_gradients(dq_sum, query, grad, k + head, v + head, row_lse, row_delta, 0, start, index, SIZE, STEP, False)
    tl.store(dq + at, (dq_sum * scale).to(dq.dtype.element_ty))


@triton.jit
def copy(x, y, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(y + at, tl.load(x + at))


POINTERS = {attend: "q k v o", attend_back: "q k v do dq dk dv", copy: "x y"}
OTHERS = {"lse": "*fp32", "delta": "*fp32", "scale": "fp32", "tokens": "i32"}


def compile_kernel(kernel, dtype, warps, constants):
    """Returns the code object for gfx1100, and the bytes of dynamic shared memory that a launch needs."""
    pointers = {name: f"*{dtype}" for name in POINTERS[kernel].split()}
    names = [name for name in kernel.arg_names if name not in constants]
    signature = {name: pointers.get(name) or OTHERS[name] for name in names}
    aligned = [i for i, name in enumerate(kernel.arg_names) if signature.get(name, "fp32") != "fp32"]
    if triton.__version__ < "3.1":
        source = ASTSource(kernel, signature, constants, triton.compiler.AttrsDescriptor(tuple(aligned), ()))
    else:
        everything = {name: signature.get(name, "constexpr") for name in kernel.arg_names}
        source = ASTSource(kernel, everything, constants, {(i,): [["tt.divisibility", 16]] for i in aligned})
    made = triton.compile(source, target=GPUTarget("hip", "gfx1100", 32), options={"num_warps": warps, "num_stages": 1})
    return made.asm["hsaco"], made.metadata.shared


def main():
    """triton_kernels.py FOLDER: writes FOLDER/NAME.co and FOLDER/NAME.lds for the objects in calibration.json of this version of Triton."""
    folder = Path(sys.argv[1])
    objects = json.loads(Path(__file__).with_name("calibration.json").read_text(encoding="utf-8"))["objects"]
    for name, item in objects.items():
        if item["triton"] == triton.__version__:
            code, shared = compile_kernel(globals()[item["kernel"]], item["dtype"], item["warps"], item["constants"])
            (folder / f"{name}.co").write_bytes(code)
            (folder / f"{name}.lds").write_text(f"{shared}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
