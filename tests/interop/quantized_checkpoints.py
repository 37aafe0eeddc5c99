"""Quantized checkpoints as bases: python tests/interop/quantized_checkpoints.py.

Writes a small Llama in each format: FP8 (per tensor, per row, blocks of 128 x 128), compressed-tensors and bitsandbytes with
their packages, GPTQ and AWQ by their formulas in numpy. The exported weights must equal the dequantized ones, and the first
loss of LoRA must be theirs. Needs ./hearth (tools/build).
"""

import json
import pathlib
import shutil
import sys

import bitsandbytes.functional as bnb
import numpy
import torch
from compressed_tensors.compressors import IntQuantizationCompressor, PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "parity"))
from language import EAGER, SMALL, train_on  # noqa: E402
from parity import hearth, logged_losses, run_checks, within  # noqa: E402

LOSS_TOLERANCE = 1e-5
CONTEXT = 24
BATCH = 3
VOCAB = 300
# Numbers of rows and columns that are not multiples of 128, so that FP8 blocks at the edges are incomplete.
SIZES = {**SMALL, "vocab_size": VOCAB, "hidden_size": 192, "intermediate_size": 320, "num_hidden_layers": 2}
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: expected {wanted}, got {got}")


def make_model():
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **SIZES), **EAGER)


def fp8(weight, scales, block=None):
    """Returns the FP8 codes of a weight and their dequantized values. `block`: rows and columns that share a scale."""
    rows, columns = weight.shape
    spread = scales
    if block:
        spread = scales.repeat_interleave(block, 0)[:rows].repeat_interleave(block, 1)[:, :columns]
    codes = (weight / spread).to(torch.float8_e4m3fn)
    return codes, codes.float() * spread


def fp8_tensor(weight):
    codes, values = fp8(weight, weight.abs().max() / 448)
    return {"weight": codes, "weight_scale": weight.abs().max() / 448, "input_scale": torch.ones(())}, values


def fp8_rows(weight):
    scales = weight.abs().amax(1, keepdim=True) / 448
    codes, values = fp8(weight, scales)
    return {"weight": codes, "weight_scale": scales}, values


def fp8_blocks(weight):
    rows, columns = ((length + 127) // 128 for length in weight.shape)
    scales = 1e-3 * (1 + torch.rand(rows, columns))
    codes, values = fp8(weight, scales, 128)
    return {"weight": codes, "weight_scale_inv": scales}, values


def scheme(bits, strategy, symmetric=True, group=None):
    args = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric, strategy=strategy, group_size=group)
    return QuantizationScheme(targets=["Linear"], weights=args)


def affine(weight, bits, group, symmetric):
    """Returns bf16 scales and zero points of groups of columns, for signed codes of `bits`."""
    parts = weight.reshape(weight.shape[0], -1, group)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if symmetric:
        scales = (parts.abs().amax(2) / high).bfloat16()
        return scales, torch.zeros(scales.shape, dtype=torch.int8)
    scales = ((parts.amax(2) - parts.amin(2)) / (high - low)).bfloat16()
    zeros = (low - parts.amin(2) / scales.float()).round().clamp(low, high)
    return scales, zeros.to(torch.int8)


def compressed(compressor, bits, group, symmetric):
    def quantize(weight):
        size = group or weight.shape[1]
        strategy = "group" if group else "channel"
        scales, zeros = affine(weight, bits, size, symmetric)
        made = scheme(bits, strategy, symmetric, group)
        state = {"weight": weight.bfloat16(), "weight_scale": scales, "weight_zero_point": zeros}
        state = compressor.compress(state, made)
        return state, compressor.decompress(state, made)["weight"]

    return quantize


def gptq(bits, group, act_order, added_zero):
    def quantize(weight):
        rows, columns = weight.shape
        generator = numpy.random.default_rng(rows + columns)
        num_groups = columns // group
        codes = generator.integers(0, 2**bits, (columns, rows), dtype=numpy.uint64)
        stored = generator.integers(0, 2**bits - 1, (num_groups, rows), dtype=numpy.uint64)
        scales = generator.uniform(1e-3, 2e-3, (num_groups, rows)).astype(numpy.float16)
        index = numpy.arange(columns) // group
        index = generator.permutation(index) if act_order else index

        def packed(values):  # Along the first axis.
            per_word = 32 // bits
            parts = values.reshape(-1, per_word, *values.shape[1:])
            words = sum(parts[:, i] << numpy.uint64(i * bits) for i in range(per_word))
            return torch.from_numpy(words.astype(numpy.uint32).view(numpy.int32).copy())

        zeros = stored.astype(numpy.float64) + added_zero
        values = scales.astype(numpy.float64)[index] * (codes - zeros[index])
        state = {
            "qweight": packed(codes),
            "qzeros": packed(stored.T.copy()).T.contiguous(),
            "scales": torch.from_numpy(scales),
            "g_idx": torch.from_numpy(index.astype(numpy.int32)),
        }
        return state, torch.from_numpy(values.T.copy())

    return quantize


def awq(group):
    def quantize(weight):
        rows, columns = weight.shape
        generator = numpy.random.default_rng(rows + columns)
        codes = generator.integers(0, 16, (columns, rows), dtype=numpy.uint64)
        zeros = generator.integers(0, 16, (columns // group, rows), dtype=numpy.uint64)
        scales = generator.uniform(1e-3, 2e-3, (columns // group, rows)).astype(numpy.float16)

        def packed(values):
            parts = values.reshape(values.shape[0], -1, 8)
            words = sum(parts[:, :, place] << numpy.uint64(4 * i) for i, place in enumerate(AWQ_ORDER))
            return torch.from_numpy(words.astype(numpy.uint32).view(numpy.int32).copy())

        index = numpy.arange(columns) // group
        values = scales.astype(numpy.float64)[index] * (codes.astype(numpy.float64) - zeros[index])
        state = {"qweight": packed(codes), "qzeros": packed(zeros), "scales": torch.from_numpy(scales)}
        return state, torch.from_numpy(values.T.copy())

    return quantize


def four_bits(kind, nested):
    def quantize(weight):
        codes, state = bnb.quantize_4bit(weight, quant_type=kind, compress_statistics=nested)
        found = {f"weight.{key}": value for key, value in state.as_dict(packed=True).items()}
        return found | {"weight": codes}, bnb.dequantize_4bit(codes, state)

    return quantize


def int8(weight):
    codes, scales, _ = bnb.int8_vectorwise_quant(weight.half())
    values = bnb.int8_vectorwise_dequant(codes, scales)
    return {"weight": codes, "SCB": scales, "weight_format": torch.zeros((), dtype=torch.uint8)}, values


def groups_config(bits, kind, form):
    weights = {"num_bits": bits, "type": kind, "symmetric": True, "strategy": "group", "group_size": 32}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


FORMATS = {
    "FP8 per tensor": ({"quant_method": "fp8"}, fp8_tensor),
    "FP8 per row": (groups_config(8, "float", "float-quantized"), fp8_rows),
    "FP8 in blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, fp8_blocks),
    "W4A16": (
        groups_config(4, "int", "pack-quantized"),
        compressed(PackedQuantizationCompressor, 4, 32, True),
    ),
    "W4A16 with zero points": (
        groups_config(4, "int", "pack-quantized"),
        compressed(PackedQuantizationCompressor, 4, 64, False),
    ),
    "W3A16": (groups_config(3, "int", "pack-quantized"), compressed(PackedQuantizationCompressor, 3, 32, True)),
    "W8A16 per row": (
        groups_config(8, "int", "pack-quantized"),
        compressed(PackedQuantizationCompressor, 8, None, True),
    ),
    "W8A8": (groups_config(8, "int", "int-quantized"), compressed(IntQuantizationCompressor, 8, None, True)),
    "GPTQ": ({"quant_method": "gptq", "bits": 4, "group_size": 64}, gptq(4, 64, False, 1)),
    "GPTQ in act order": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}, gptq(4, 32, True, 1)),
    "GPTQ v2 of 8 bits": (
        {"quant_method": "gptq", "bits": 8, "group_size": 64, "checkpoint_format": "gptq_v2"},
        gptq(8, 64, False, 0),
    ),
    "AWQ": ({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}, awq(64)),
    "nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, four_bits("nf4", True)),
    "nf4 without nesting": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, four_bits("nf4", False)),
    "fp4": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, four_bits("fp4", True)),
    "int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, int8),
}


def write(name, folder):
    """Writes folder/model in a format; returns the model with the dequantized values."""
    settings, quantize = FORMATS[name]
    model = make_model()
    model.save_pretrained(folder / "model")
    state = load_file(folder / "model" / "model.safetensors")
    files, values = {}, {}
    for key, weight in state.items():
        if not key.endswith("proj.weight"):
            files[key] = weight
            continue
        parts, values[key] = quantize(weight)
        files |= {f"{key.removesuffix('weight')}{part}": value.contiguous() for part, value in parts.items()}
    save_file(files, folder / "model" / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "model" / "config.json").read_text())
    config["quantization_config"] = settings
    (folder / "model" / "config.json").write_text(json.dumps(config))
    model.load_state_dict({key: value.float() for key, value in values.items()}, strict=False)
    return model, values


def check_values(name, folder):
    _, values = write(name, folder)
    hearth("export", folder / "model", "--type", "f32", "--out", folder / "out")
    found = load_file(folder / "out" / "model.safetensors")
    for key, wanted in values.items():
        # compressed-tensors and bitsandbytes round to the dtype of their scales at the end.
        if not torch.equal(found[key].to(wanted.dtype), wanted):
            gap = (found[key].double() - wanted.double()).abs().max()
            raise AssertionError(f"{key} differs by up to {gap}")
    config = json.loads((folder / "out" / "config.json").read_text())
    expect("quantization_config in the export", "quantization_config" in config, False)
    AutoModelForCausalLM.from_pretrained(folder / "out")
    return f"{name}: {len(values)} matrices are dequantized exactly, and the export loads in transformers"


def first_loss(folder, tokens, *arguments):
    shutil.rmtree(folder / "run", ignore_errors=True)
    save_file({"tokens": tokens}, folder / "data.safetensors")
    train = {"steps": 1, "batch": BATCH}
    run = train_on(folder, "data.safetensors", 1e-3, {"context": CONTEXT}, train, ["adapter.rank=4", *arguments])
    return logged_losses(run)[0]


def check_loss(name, folder):
    model, _ = write(name, folder)
    # Values as exported: check_values compares them with those of the packages, which are rounded if scales are bf16.
    hearth("export", folder / "model", "--type", "f32", "--out", folder / "out")
    model.load_state_dict(load_file(folder / "out" / "model.safetensors"))
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, VOCAB, (BATCH * CONTEXT + 1,), generator=generator, dtype=torch.int32)
    with torch.no_grad():
        logits = model.double()(tokens[:-1].long().view(BATCH, CONTEXT), use_cache=False).logits
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:].long()).item()
    # adapter.quantize copies nf4 and int8 without rounding them again.
    kept = {"nf4": ["adapter.quantize=nf4"], "int8": ["adapter.quantize=int8"]}.get(name, [])
    gaps = [abs(first_loss(folder, tokens, *more) - wanted) / wanted for more in ([], kept)]
    return within(LOSS_TOLERANCE, max(gaps), f"{name}: LoRA starts at the loss of the values to {max(gaps):.1e}")


def checks(names):
    for name in names:
        yield f"{name} values", lambda folder, name=name: check_values(name, folder)
        yield f"{name} loss", lambda folder, name=name: check_loss(name, folder)


if __name__ == "__main__":
    sys.exit(run_checks(checks(sys.argv[1:] or list(FORMATS))))
