"""Hearth's denoisers against diffusers' from the same weights on the same noise: python tests/parity/denoiser.py [CASE...].

Per case, a small random model of diffusers: its prediction and every gradient within 1e-5 of float64, each tensor relative
to its largest element, and the losses of 20 AdamW steps within 1e-4. What would be easy to get wrong is done wrong on
purpose, and has to be seen. Needs build/cpu/tests/denoiser_steps (HEARTH_TESTS=ON HEARTH_TARGETS=more_tests tools/build).
"""

import argparse
import copy
import json
import math
import subprocess
import sys
from unittest import mock

import torch
from diffusers import DiTTransformer2DModel, Flux2Transformer2DModel, FluxTransformer2DModel
from diffusers.models import embeddings
from parity import ROOT, gradient_gap, relative_gap, run_checks, within
from safetensors.torch import load_file, save_file
from torch import nn

PROGRAM = ROOT / "build/cpu/tests/denoiser_steps"
STEPS, ROWS, TEXT_TOKENS = 20, 2, 5
TOLERANCE, LOSS_TOLERANCE = 1e-5, 1e-4
# A mistake is farther off than this.
SEEN = 10 * TOLERANCE
FLUX = {
    "patch_size": 1,
    "in_channels": 4,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 32,
    "pooled_projection_dim": 32,
    "axes_dims_rope": [4, 4, 8],
}
FLUX2 = {
    "patch_size": 1,
    "in_channels": 8,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 24,
    "timestep_guidance_channels": 32,
    "axes_dims_rope": [4, 4, 4, 4],
}
DIT = {
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "in_channels": 3,
    "out_channels": 6,
    "num_layers": 2,
    "sample_size": 8,
    "patch_size": 2,
    "num_embeds_ada_norm": 7,
}


class Flux:
    """A model of diffusers and what it is given; pictures of 3 x 4 tokens."""

    cls, height, width, text_tokens = FluxTransformer2DModel, 3, 4, TEXT_TOKENS

    def __init__(self, config, guidance=1.0):
        self.config, self.guidance, self.own_keys = config, guidance, {}

    def make(self):
        return self.cls(**self.config)

    def inputs(self, generator):
        made = {"text": normal(generator, STEPS, ROWS * TEXT_TOKENS, self.config["joint_attention_dim"])}
        if self.cls is FluxTransformer2DModel:
            made["pooled"] = normal(generator, STEPS, ROWS, self.config["pooled_projection_dim"])
        return made

    def features(self):
        return self.config["in_channels"]

    def ids(self, dtype):
        rows, columns = torch.meshgrid(torch.arange(self.height), torch.arange(self.width), indexing="ij")
        return torch.stack([torch.zeros(rows.shape), rows, columns], -1).reshape(-1, 3).to(dtype), torch.zeros(
            self.text_tokens, 3
        )

    def given(self, batches, step, dtype):
        picture, text = self.ids(dtype)
        return {
            "hidden_states": batches["tokens"][step].reshape(ROWS, -1, self.features()).to(dtype),
            "timestep": batches["time"][step].to(dtype) / 1000,
            "img_ids": picture,
            "txt_ids": text,
            "guidance": torch.full((ROWS,), self.guidance) if self.config.get("guidance_embeds") else None,
        }

    def conditions(self, _model, batches, step, dtype):
        made = {"encoder_hidden_states": batches["text"][step].reshape(ROWS, self.text_tokens, -1).to(dtype)}
        if "pooled" in batches:
            made["pooled_projections"] = batches["pooled"][step].to(dtype)
        return made

    def predict(self, model, batches, step, dtype):
        given = self.given(batches, step, dtype) | self.conditions(model, batches, step, dtype)
        return model(**given).sample.reshape(-1, self.features())


class FluxOfClasses(Flux):
    """Tables give each class its text tokens and its pooled vector."""

    text_tokens, classes = 3, 4

    def __init__(self, config):
        super().__init__(config)
        self.own_keys = {"num_classes": self.classes, "class_tokens": self.text_tokens, "latent_patch": 1}

    def make(self):
        model = super().make()
        model.class_tokens = nn.Embedding(self.classes + 1, self.text_tokens * self.config["joint_attention_dim"])
        model.class_pooled = nn.Embedding(self.classes + 1, self.config["pooled_projection_dim"])
        return model

    def inputs(self, generator):
        return {"labels": torch.randint(0, self.classes + 1, (STEPS, ROWS), generator=generator).to(torch.int32)}

    def conditions(self, model, batches, step, dtype):
        labels = batches["labels"][step].long()
        text = model.class_tokens(labels).reshape(ROWS, self.text_tokens, -1)
        return {"encoder_hidden_states": text, "pooled_projections": model.class_pooled(labels)}


class Flux2(Flux):
    cls = Flux2Transformer2DModel

    def ids(self, dtype):
        picture = nn.functional.pad(super().ids(dtype)[0], (0, 1))
        return picture, nn.functional.pad(torch.arange(self.text_tokens).to(dtype)[:, None], (3, 0))


class Dit:
    cls, height, width, guidance = DiTTransformer2DModel, 4, 4, 1.0

    def __init__(self, config):
        self.config, self.own_keys = config, {}

    def make(self):
        return self.cls(**self.config)

    def inputs(self, generator):
        classes = self.config["num_embeds_ada_norm"]
        return {"labels": torch.randint(0, classes + 1, (STEPS, ROWS), generator=generator).to(torch.int32)}

    def features(self):
        return self.config["in_channels"] * self.config["patch_size"] ** 2

    def predict(self, model, batches, step, dtype):
        """Tokens as Hearth has them: features in the order (channel, y, x)."""
        side, size = self.config["patch_size"], self.config["sample_size"]
        tokens = batches["tokens"][step].reshape(ROWS, self.height, self.width, -1, side, side)
        latents = tokens.permute(0, 3, 1, 4, 2, 5).reshape(ROWS, -1, size, size)
        made = model(latents.to(dtype), batches["time"][step].to(dtype), batches["labels"][step].long()).sample
        cut = made.reshape(ROWS, -1, self.height, side, self.width, side).permute(0, 2, 4, 1, 3, 5)
        return cut.reshape(ROWS * self.height * self.width, -1)


CASES = {
    "flux": lambda: Flux(FLUX),
    "flux with guidance": lambda: Flux({**FLUX, "guidance_embeds": True}, guidance=3.5),
    "flux of classes": lambda: FluxOfClasses(FLUX),
    "flux2": lambda: Flux2({**FLUX2, "guidance_embeds": False}),
    "flux2 with guidance": lambda: Flux2({**FLUX2, "guidance_embeds": True}, guidance=4.0),
    "dit": lambda: Dit(DIT),
    "dit without learned variance": lambda: Dit({**DIT, "out_channels": None, "attention_bias": False}),
}


ROUNDED_SINUSOIDS = embeddings.get_timestep_embedding


def sinusoids(timesteps, embedding_dim, flip_sin_to_cos, downscale_freq_shift, scale=1):
    """As diffusers has them, in float32 frequencies whatever the model's type; but torch's float32 exp is an ulp off here and
    there, which a guidance of 3500 multiplies."""
    half = embedding_dim // 2
    exponents = -math.log(10000) * torch.arange(half, dtype=torch.float32) / (half - downscale_freq_shift)
    angles = scale * (timesteps.float()[:, None] * exponents.double().exp().float()).double()
    parts = [angles.cos(), angles.sin()] if flip_sin_to_cos else [angles.sin(), angles.cos()]
    made = torch.cat(parts, -1)
    rounded = ROUNDED_SINUSOIDS(timesteps, embedding_dim, flip_sin_to_cos, downscale_freq_shift, scale)
    torch.testing.assert_close(made.float(), rounded, rtol=0, atol=1e-3)
    return made


def normal(generator, *shape):
    return torch.randn(shape, generator=generator)


def make_model(case):
    """diffusers starts biases and modulation wherever torch does; nothing is left at zero or one."""
    torch.manual_seed(2)
    model = case.make().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".norm_" in name and weight.ndim == 1 and name.endswith("weight"):
                weight.uniform_(0.5, 1.5)
            elif weight.ndim == 1:
                weight.normal_(std=0.2)
    return model


def make_batches(case):
    generator = torch.Generator().manual_seed(5)
    tokens = ROWS * case.height * case.width
    return {
        "tokens": normal(generator, STEPS, tokens, case.features()),
        "target": normal(generator, STEPS, tokens, case.features()),
        "time": torch.randint(0, 1000, (STEPS, ROWS), generator=generator).float(),
        "weight": 0.5 + torch.rand((STEPS, ROWS), generator=generator),
        **case.inputs(generator),
    }


def loss_at(case, model, batches, step, dtype):
    target = batches["target"][step].to(dtype)
    made = case.predict(model, batches, step, dtype)[:, : target.shape[1]]
    of_sample = ((made - target) ** 2).reshape(ROWS, -1).mean(1)
    return (batches["weight"][step].to(dtype) * of_sample).mean()


def exact_results(case, model, batches, dtype=torch.float64):
    """What the first batch's prediction, gradients and the losses are."""
    model = copy.deepcopy(model).to(dtype)
    with torch.no_grad():
        prediction = case.predict(model, batches, 0, dtype)
    loss_at(case, model, batches, 0, dtype).backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_at(case, model, batches, step, dtype)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return prediction, gradients, losses


def hearth_results(folder, case, state, batches, config=None, guidance=None, files=()):
    """From weights, or from `files`: a model in any of its forms, and a LoRA."""
    folder.mkdir()
    config = {"_class_name": case.cls.__name__, **case.own_keys, **(config or case.config)}
    (folder / "config.json").write_text(json.dumps(config))
    if not files:
        files = [folder / "init.safetensors"]
        save_file(state, files[0])
    save_file({name: batch.contiguous() for name, batch in batches.items()}, folder / "batches.safetensors")
    arguments = [folder, case.height, case.width, case.guidance if guidance is None else guidance, *files]
    done = subprocess.run([PROGRAM, *map(str, arguments)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr.strip())
    return load_file(folder / "found.safetensors")


def check_case(name, folder):
    case = CASES[name]()
    model, batches = make_model(case), make_batches(case)
    prediction, gradients, losses = exact_results(case, model, batches)
    found = hearth_results(folder / "run", case, model.state_dict(), batches)
    made = {key.removeprefix("gradient."): value for key, value in found.items() if key.startswith("gradient.")}
    if set(made) != set(gradients):
        raise AssertionError(f"expected gradients of the same weights, got others: {sorted(set(made) ^ set(gradients))}")
    forward, _ = gradient_gap({"prediction": found["prediction"]}, {"prediction": prediction})
    backward, worst = gradient_gap(made, gradients)
    steps = relative_gap(found["losses"].tolist(), losses)
    text = f"{name}: prediction within {forward:.1e} of float64, gradients {backward:.1e} ({worst}), losses {steps:.1e}"
    within(TOLERANCE, forward, text)
    within(TOLERANCE, backward, text)
    return within(LOSS_TOLERANCE, steps, text)


def halves_swapped(weight):
    return weight.roll(weight.shape[0] // 2, 0).contiguous()


def swapped_in(state, modules):
    return {key: halves_swapped(value) if key.startswith(modules) else value for key, value in state.items()}


def turned(axes):
    return axes[-1:] + axes[:-1]


# Fault: the case, and what becomes of weights, config or guidance.
FAULTS = {
    "axes in another order": ("flux", lambda case, state: {"config": {**FLUX, "axes_dims_rope": turned([4, 4, 8])}}),
    "another base of positions": ("flux2", lambda case, state: {"config": {**case.config, "rope_theta": 10000}}),
    "another guidance scale": ("flux with guidance", lambda case, state: {"guidance": 1.0}),
    "scale and shift of the last layer swapped": (
        "flux",
        lambda case, state: {"state": swapped_in(state, "norm_out.linear")},
    ),
    "scale and shift of FLUX.2's last layer swapped": (
        "flux2",
        lambda case, state: {"state": swapped_in(state, "norm_out.linear")},
    ),
    "scale and shift of DiT's last layer swapped": ("dit", lambda case, state: {"state": swapped_in(state, "proj_out_1")}),
}


def check_fault(fault, folder):
    name, spoil = FAULTS[fault]
    case = CASES[name]()
    model, batches = make_model(case), make_batches(case)
    prediction = exact_results(case, model, batches)[0]
    given = {"state": model.state_dict(), **spoil(case, model.state_dict())}
    found = hearth_results(folder / "run", case, batches=batches, **given)
    gap, _ = gradient_gap({"prediction": found["prediction"]}, {"prediction": prediction})
    if gap < SEEN:
        raise AssertionError(f"{fault}: the prediction is only {gap:.1e} off, so the test would not see it")
    return f"{fault}: seen, the prediction is {gap:.1e} off"


def checks(names):
    for name in names:
        yield name, lambda folder, name=name: check_case(name, folder)
    for fault, (name, _) in FAULTS.items():
        if name in names:
            yield fault, lambda folder, fault=fault: check_fault(fault, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"among {', '.join(CASES)}; all by default")
    names = parser.parse_args().cases or list(CASES)
    with mock.patch.object(embeddings, "get_timestep_embedding", sinusoids):
        return run_checks(checks(names))


if __name__ == "__main__":
    sys.exit(main())
