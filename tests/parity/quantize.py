"""Quantization-aware training against torchao and torch: python tests/parity/quantize.py.

Values and gradients of the op fake_quantize_groups, bit for bit with torchao's functions (choose_qparams_affine and
fake_quantize_affine in f32, with scales of weights rounded to bf16; _choose_scale_float8 and its quantizer).
The first gradients of a small Llama whose linear layers are rounded by these functions, in full and with LoRA.
Needs ./hearth and build/cpu/tests/group_values (HEARTH_TESTS=ON HEARTH_TARGETS=more_tests tools/build).
"""

import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file
from torchao.quantization.qat.utils import _fake_quantize_per_channel_group, _fake_quantize_per_token
from torchao.quantization.quant_primitives import (
    MappingType,
    _choose_scale_float8,
    _dequantize_affine_float8,
    _quantize_affine_float8,
    choose_qparams_affine,
)

from language import BATCH, make_model, loss_of, run_hearth, tokens_for
from parity import ROOT, gradient_gap, run_checks, within

ROWS, COLUMNS = 96, 256
# Formats of weights and inputs, and the number of weights that share a scale (None: a row).
SCHEMES = {
    "int4": ("int4", None, 8),
    "8da4w": ("int4", "int8_affine", 8),
    "w8a8": ("int8", "int8_token", None),
    "fp8": ("fp8", "fp8_token", None),
}
# A token's largest element is in the middle of two codes in w8a8 if it is negative, and its last bit chooses one.
TOLERANCES = {"int4": 1e-5, "8da4w": 1e-5, "w8a8": 5e-2, "fp8": 1e-5}
BITS = {"int4": 4, "int8": 8, "int8_token": 8, "int8_affine": 8}


def torchao_values(x, kind, group):
    """Returns the rounded values by torchao's functions, for groups of adjacent elements of each row."""
    low, high = -(2 ** (BITS.get(kind, 8) - 1)), 2 ** (BITS.get(kind, 8) - 1) - 1
    if kind.startswith("fp8"):
        scale = fp8_scale(x.detach(), kind, group)
        return _dequantize_affine_float8(_quantize_affine_float8(x, scale), scale)
    affine = kind == "int8_affine"
    scale, zero = choose_qparams_affine(
        x.detach(),
        MappingType.ASYMMETRIC if affine else MappingType.SYMMETRIC,
        (1, group),
        torch.int8,
        quant_min=low,
        quant_max=high,
        scale_dtype=torch.bfloat16 if kind in ("int4", "int8") else torch.float32,
        zero_point_dtype=torch.int32,
    )
    scale = scale.float().reshape(x.shape[0], -1)
    zero = zero.reshape(x.shape[0], -1)
    if affine:
        return _fake_quantize_per_token(x, scale, zero, low, high)
    return _fake_quantize_per_channel_group(x, scale, zero, low, high, group)


def fp8_scale(x, kind, group):
    scale = _choose_scale_float8(x, [1, group], torch.float8_e4m3fn)
    return scale if kind == "fp8_token" else scale.bfloat16().float()


def check_values(kind, group, folder):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(ROWS, COLUMNS, generator=generator)
    # Rows of other magnitudes and means, of zeros, of equal elements, and with an outlier.
    x *= torch.logspace(-12, 4, ROWS)[:, None]
    x[::5] += x[::5].abs().amax(1, keepdim=True)
    x[1], x[2], x[3, 7] = 0, 2.5, 1e6
    dy = torch.randn(ROWS, COLUMNS, generator=generator)
    save_file({"x": x, "dy": dy}, folder / "given.safetensors")
    program = ROOT / "build/cpu/tests/group_values"
    subprocess.run([str(program), str(folder), kind, str(group)], check=True)
    found = load_file(folder / "found.safetensors")
    leaf = x.clone().requires_grad_()
    wanted = torchao_values(leaf, kind, group)
    wanted.backward(dy)
    # Where a row is 0, torchao divides 0 by 0 for fp8.
    wanted = wanted.detach().nan_to_num()
    if not torch.equal(found["y"], wanted):
        worst = ((found["y"] - wanted).abs() / wanted.abs().clamp(min=1e-30)).max()
        raise AssertionError(f"{kind}: values differ by up to {worst:.1e}")
    passes = (leaf.grad != 0) | (x == 0)
    if kind.startswith("fp8"):
        # torchao casts this gradient to E4M3, in which most of it is 0. The derivative of its clamp:
        passes = (x == 0) | (x.abs() / fp8_scale(x, kind, group) <= 448)
    if kind.endswith("_token"):
        # The last bit of a token's largest element would decide whether it is clipped by half a step.
        passes = torch.ones_like(passes)
    if not torch.equal(found["dx"], torch.where(passes, dy, 0)):
        raise AssertionError(f"{kind}: the gradient is passed on for other elements than torchao's")
    return f"{kind}, groups of {group}: values are torchao's bit for bit; {(~passes).sum()} of {x.numel()} clipped"


def straight_through(x, kind, group):
    """Like torchao_values(), with the gradients that check_values() expects."""
    if kind.endswith("_token"):
        return x + (torchao_values(x, kind, group) - x).detach()
    if kind != "fp8":
        return torchao_values(x, kind, group)
    scale = fp8_scale(x.detach(), kind, group)
    scaled = (x / scale).clamp(-448, 448)
    return (scaled + (scaled.to(torch.float8_e4m3fn).float() - scaled).detach()) * scale


class RoundedLinear(torch.nn.Module):
    """torchao's FakeQuantizedLinear, and torchtune's QATLoRALinear if a rank is given."""

    def __init__(self, linear, scheme, rank):
        super().__init__()
        self.scheme, self.weight = scheme, linear.weight
        if rank:
            self.weight.requires_grad_(False)
            self.lora_A = torch.nn.Linear(linear.in_features, rank, bias=False)
            self.lora_B = torch.nn.Linear(rank, linear.out_features, bias=False)
            torch.nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        weights, inputs, group = SCHEMES[self.scheme]
        rows = x.flatten(0, -2)
        rounded = straight_through(rows, inputs, rows.shape[1]).view(x.shape) if inputs else x
        weight = straight_through(self.weight, weights, group or self.weight.shape[1])
        out = torch.nn.functional.linear(rounded, weight)
        return out + self.lora_B(self.lora_A(x)) if hasattr(self, "lora_A") else out


def round_layers(model, scheme, rank=0):
    for name, module in list(model.named_modules()):
        if name.endswith("_proj"):
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, RoundedLinear(module, scheme, rank))


def check_gradients(scheme, folder):
    tokens = tokens_for(BATCH, seed=5)
    model = make_model("llama")
    dump = folder / "gradients.safetensors"
    keys = [f"quantize.qat={scheme}", *(["quantize.group=8"] if SCHEMES[scheme][2] else [])]
    run_hearth(folder, model, tokens, 1, [*keys, "--dump-gradients", str(dump)])
    round_layers(model, scheme)
    loss_of(model, tokens, 0).backward()
    found = load_file(dump)
    gap, worst = gradient_gap(found, {name: weight.grad.double() for name, weight in model.named_parameters()})
    return within(TOLERANCES[scheme], gap, f"{scheme}: gradients within {gap:.1e} of torchao's ({worst})")


def check_lora(scheme, folder):
    tokens = tokens_for(BATCH, seed=5)
    model = make_model("llama")
    dump = folder / "gradients.safetensors"
    keys = [f"quantize.qat={scheme}", *(["quantize.group=8"] if SCHEMES[scheme][2] else [])]
    keys += ["adapter.name=lora", "adapter.rank=4", "adapter.alpha=4", "adapter.dropout=0"]
    run = run_hearth(folder, model, tokens, 1, [*keys, "optimizer.lr=0", "--dump-gradients", str(dump)])
    round_layers(model, scheme, 4)
    for name, value in load_file(run / "adapter_model.safetensors").items():
        model.get_parameter(name.removeprefix("base_model.model.")).data = value
    loss_of(model, tokens, 0).backward()
    found = {name.removeprefix("base_model.model."): value for name, value in load_file(dump).items()}
    wanted = {name: weight.grad.double() for name, weight in model.named_parameters() if "lora_B" in name}
    gap, worst = gradient_gap(found, wanted)
    return within(TOLERANCES[scheme], gap, f"{scheme} with LoRA: gradients within {gap:.1e} of torchtune's rule ({worst})")


def checks():
    for scheme in SCHEMES:
        yield scheme, lambda folder, scheme=scheme: check_gradients(scheme, folder)
        yield f"{scheme} with LoRA", lambda folder, scheme=scheme: check_lora(scheme, folder)
    for kind, group in (
        ("int4", 128),
        ("int4", 32),
        ("int8", COLUMNS),
        ("fp8", COLUMNS),
        ("int8_token", COLUMNS),
        ("fp8_token", COLUMNS),
        ("int8_affine", COLUMNS),
    ):
        yield f"{kind} {group}", lambda folder, kind=kind, group=group: check_values(kind, group, folder)


if __name__ == "__main__":
    sys.exit(run_checks(checks()))
