"""Autoencoders of pictures against diffusers from the same weights: python tests/parity/autoencoder.py [CASE...].

Per case, of a small model made from a seed: what the encoder makes of pictures and the decoder of latents, within 1e-5 of
float64 relative to the largest element; the gradient of every weight as near as parity.py wants it; a PNG as latents that a
denoiser learns of, and a picture made of such latents. Needs build/cpu/tests/encoder_outputs (HEARTH_TESTS=ON HEARTH_TARGETS=more_tests tools/build).
"""

import argparse
import copy
import subprocess
import sys

import numpy
import torch
from diffusers import AutoencoderKL, AutoencoderKLFlux2
from parity import ROOT, gradient_gap, judge_gradients, run_checks, within
from PIL import Image
from safetensors.torch import load_file, save_file

TOLERANCE = 1e-5
SHAPES = {"block_out_channels": (8, 16), "latent_channels": 4, "norm_num_groups": 4}


def model_of(levels, kind=AutoencoderKL, **keys):
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * levels, "up_block_types": ("UpDecoderBlock2D",) * levels}
    return lambda: kind(**{**SHAPES, **blocks, **keys})


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
    "as FLUX.2": (model_of(2, AutoencoderKLFlux2, decoder_block_out_channels=(12, 8)), (8, 16)),
    "without attention": (model_of(2, mid_block_add_attention=False), (12, 8)),
}


def outputs(mode, folder, *arguments):
    """What the program finds in a folder."""
    program = ROOT / "build/cpu/tests/encoder_outputs"
    command = [str(program), mode, str(folder), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
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
        for name, statistic in model.named_buffers():
            if name.startswith("bn.running"):
                statistic.uniform_(0.5, 2)
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


def normal(model, height, width):
    """What is taken from means of latents before they are multiplied by the second, each [channels, height, width]."""
    config = model.config
    if not hasattr(model, "bn"):
        shape = (config.latent_channels, height, width)
        return torch.full(shape, config.shift_factor or 0.0).double(), torch.full(shape, config.scaling_factor).double()

    def spread(values):
        """Of each channel of a patch of 2 x 2 latents."""
        whole = values.double().view(config.latent_channels, 1, 2, 1, 2)
        return whole.expand(-1, height // 2, 2, width // 2, 2).reshape(config.latent_channels, height, width)

    return spread(model.bn.running_mean), spread((model.bn.running_var.double() + config.batch_norm_eps).rsqrt())


def check_pictures(case, folder):
    make, (height, width) = CASES[case]
    model = lively(make)
    exact = copy.deepcopy(model).double()
    model.save_pretrained(folder / "vae", safe_serialization=True)
    levels = numpy.random.default_rng(5).integers(0, 256, (height, width, 3), dtype=numpy.uint8)
    Image.fromarray(levels).save(folder / "picture.png")
    pixels = torch.from_numpy(levels).permute(2, 0, 1)[None].double() / 255 * 2 - 1
    with torch.no_grad():
        means = moments(exact, pixels)[0].chunk(2)[0]
        shift, scale = normal(model, *means.shape[1:])
        latents = (means - shift) * scale
        given = torch.randn(latents.shape, generator=torch.Generator().manual_seed(2))
        decoded = exact.decode((given.double() / scale + shift)[None]).sample[0]
    save_file({"latents": given}, folder / "inputs.safetensors")
    found = outputs("picture", folder)
    gap = relative(found["latents"], latents)
    picture = ((decoded + 1) * 127.5).clamp(0, 255).permute(1, 2, 0)
    # Where a level is as near to the next, rounding may decide.
    off = ((found["picture"].double() - picture).abs() - 0.5).max().item()
    if picture.std() < 5:
        raise AssertionError("the picture shows nothing")
    text = f"{case}: latents within {gap:.1e}, levels of the picture within a half and {max(off, 0):.1e}"
    return within(1e-2, off, within(TOLERANCE, gap, text))


def check_model(case, folder):
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
    return run_checks(
        (f"{name} {check.__name__}", lambda folder, name=name, check=check: check(name, folder))
        for name in names
        for check in (check_model, check_pictures)
    )


if __name__ == "__main__":
    sys.exit(main())
