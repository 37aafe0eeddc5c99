"""Autoencoders of pictures against diffusers from the same weights: python tests/parity/autoencoder.py [CASE...].

Per case, of a small model made from a seed: what the encoder makes of pictures and the decoder of latents, within 1e-5 of
float64 relative to the largest element, and the gradient of every weight as near as parity.py wants it. Needs
build/cpu/tests/encoder_outputs (HEARTH_TESTS=ON tools/build).
"""

import argparse
import copy
import subprocess
import sys

import torch
from diffusers import AutoencoderKL
from parity import ROOT, gradient_gap, judge_gradients, run_checks, within
from safetensors.torch import load_file, save_file

TOLERANCE = 1e-5
SHAPES = {"block_out_channels": (8, 16), "latent_channels": 4, "norm_num_groups": 4}


def model_of(levels, **keys):
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * levels, "up_block_types": ("UpDecoderBlock2D",) * levels}
    return lambda: AutoencoderKL(**{**SHAPES, **blocks, **keys})


# Case: how to make the model, and the height and width of its pictures.
CASES = {
    "AutoencoderKL": (model_of(2, layers_per_block=1), (16, 24)),
    "as FLUX.1": (
        model_of(
            4,
            block_out_channels=(4, 8, 16, 16),
            layers_per_block=2,
            latent_channels=3,
            use_quant_conv=False,
            use_post_quant_conv=False,
            shift_factor=0.0609,
            scaling_factor=1.5035,
        ),
        (32, 16),
    ),
    "without attention": (model_of(2, mid_block_add_attention=False), (12, 8)),
}


def outputs(mode, folder):
    """What the program finds in a folder."""
    program = ROOT / "build/cpu/tests/encoder_outputs"
    done = subprocess.run([str(program), mode, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"encoder_outputs {mode}: {done.stderr.strip()}")
    return load_file(folder / "found.safetensors")


def lively(make, seed=3):
    """A model whose biases and norms are not what they start as, so that each of them counts."""
    torch.manual_seed(seed)
    model = make().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight += 0.2 * torch.randn(weight.shape)
    return model


def relative(found, exact):
    """The largest error, relative to the largest element."""
    if found.shape != exact.shape:
        raise AssertionError(f"expected {tuple(exact.shape)}, got {tuple(found.shape)}")
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()


def moments(model, pictures):
    made = model.encoder(pictures)
    return made if model.quant_conv is None else model.quant_conv(made)


def in_rows(pictures):
    return pictures.permute(0, 2, 3, 1).contiguous()


def drawn(model, extent):
    """Pictures, latents, and what the results of each are multiplied by for the loss."""
    torch.manual_seed(11)
    factor = 2 ** (len(model.config.block_out_channels) - 1)
    height, width = extent
    pictures = torch.rand(2, 3, height, width) * 2 - 1
    latents = torch.randn(2, model.config.latent_channels, height // factor, width // factor)
    of_moments = torch.randn(2, 2 * latents.shape[1], *latents.shape[2:])
    return {"pictures": pictures, "latents": latents, "of_moments": of_moments, "of_pictures": torch.randn(pictures.shape)}


def run(model, inputs, dtype):
    """Moments, decoded pictures and gradients."""
    model = copy.deepcopy(model).to(dtype)
    given = {name: value.to(dtype) for name, value in inputs.items()}
    encoded, decoded = moments(model, given["pictures"]), model.decode(given["latents"]).sample
    ((encoded * given["of_moments"]).sum() + (decoded * given["of_pictures"]).sum()).backward()
    return encoded.detach(), decoded.detach(), {name: weight.grad for name, weight in model.named_parameters()}


def check(case, folder):
    make, extent = CASES[case]
    model = lively(make)
    inputs = drawn(model, extent)
    encoded, decoded, gradients = run(model, inputs, torch.float64)
    own = gradient_gap(run(model, inputs, torch.float32)[2], gradients)
    model.save_pretrained(folder / "vae", safe_serialization=True)
    save_file({name: in_rows(value) for name, value in inputs.items()}, folder / "inputs.safetensors")
    found = outputs("autoencoder", folder)
    gap = max(relative(found["moments"], in_rows(encoded)), relative(found["pictures"], in_rows(decoded)))
    text = within(TOLERANCE, gap, f"{case}: both ways within {gap:.1e} of float64")
    dumped = {name.removeprefix("gradient."): value for name, value in found.items() if name.startswith("gradient.")}
    missing = sorted(set(gradients) ^ set(dumped))
    if missing:
        raise AssertionError(f"expected gradients of the same weights, got others: {', '.join(missing)}")
    return f"{text}; {judge_gradients('', [gradient_gap(dumped, gradients)], [own]).removeprefix(': ')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"among {', '.join(CASES)}; all by default")
    names = parser.parse_args().cases or list(CASES)
    return run_checks((name, lambda folder, name=name: check(name, folder)) for name in names)


if __name__ == "__main__":
    sys.exit(main())
