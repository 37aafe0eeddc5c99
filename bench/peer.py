"""One torch process for `tools/bench`: peer.py CASE VARIANT --threads T.

CASE is like resnet18-b64-fp32, VARIANT one of variants_of(CASE). It takes its first step at once and
then answers every line {"run": STEPS} on stdin with a line of JSON:
{"step_seconds": [...], "peak_rss_bytes": N, "first_step_seconds": S}; first_step_seconds runs from the moment the
parent gave as HEARTH_BENCH_SPAWNED (time.monotonic) to the end of the first step.
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import time

import torch

from models import ANSWER_TOKENS, CONTEXT, MODELS, PROMPT_TOKENS
from models import add_lora, make_llama, random_tokens, synthetic_batch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/parity"))
import yolox_model  # noqa: E402
from segment_model import Dilated, UNet  # noqa: E402

LEARNING_RATE = 0.01
TEXT_RATE = 1e-3


def parse_case(case):
    """'resnet18-b64-bf16' -> ('resnet18', 64, 'bf16')."""
    model, batch, dtype = case.split("-")
    return model, int(batch[1:]), dtype


def variants_of(case):
    """The ways in which torch can run a case: the best of them counts."""
    model, _, dtype = parse_case(case)
    if not model.startswith("llama") and model not in DENOISERS:
        return ("eager-nchw", "eager-channels_last", "compile-nchw", "compile-channels_last")
    if model.endswith("_answer"):
        return ("eager", "compile")
    if dtype == "bf16":
        return ("eager-autocast", "eager-pure", "compile-autocast", "compile-pure")
    return ("eager", "compile")


class Runner:
    """Repeats step()."""

    def run(self, steps):
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - start)
        return seconds

    def tune(self):
        """After the first step: chooses what depends on the machine."""


class Trainer(Runner):
    """Subclasses have `parameters`, `autocast`, loss() and make_optimizer(**kind)."""

    def step(self):
        with self.autocast:
            loss = self.loss()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def tune(self):
        """Keeps the faster of the fused and the foreach update, where a step is short enough to tell."""
        if min(self.run(1)) > 4:
            return
        best = {}
        for kind in ({"fused": True}, {"foreach": True}):
            self.optimizer = self.make_optimizer(**kind)
            first = min(self.run(1))
            best[min(self.run(4 if first < 1 else 2))] = kind
        self.optimizer = self.make_optimizer(**best[min(best)])


class PictureTrainer(Trainer):
    def __init__(self, case, variant):
        name, batch, dtype = parse_case(case)
        mode, layout = variant.split("-")
        model, images, self.labels = self.make(name, batch)
        if layout == "channels_last":
            model = model.to(memory_format=torch.channels_last)
            images = images.to(memory_format=torch.channels_last)
        self.images = images
        self.parameters = list(model.parameters())
        self.model = torch.compile(model) if mode == "compile" else model
        self.autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16")
        self.optimizer = self.make_optimizer(fused=True)

    def make(self, name, batch):
        return MODELS[name](), *synthetic_batch(name, batch)

    def make_optimizer(self, **kind):
        return torch.optim.SGD(self.parameters, lr=LEARNING_RATE, momentum=0.9, **kind)

    def loss(self):
        return torch.nn.functional.cross_entropy(self.model(self.images), self.labels)


# How to make a model, the side of its pictures, its classes.
SEGMENTERS = {
    "unet": (lambda: UNet(32, 11), 128, 11),
    "deeplabv3_r50": (lambda: Dilated(64, 21, deeplab=True, dropout=True), 256, 21),
}


def mask_loss(made, masks):
    """Over pixels, of the auxiliary head half as much."""
    loss = torch.nn.functional.cross_entropy(made["out"], masks)
    if "aux" in made:
        loss = loss + 0.5 * torch.nn.functional.cross_entropy(made["aux"], masks)
    return loss


class MaskTrainer(PictureTrainer):
    def make(self, name, batch):
        make, side, num_classes = SEGMENTERS[name]
        masks = torch.randint(0, num_classes, (batch, side, side))
        return make(), torch.randn(batch, 3, side, side), masks

    def loss(self):
        return mask_loss(self.model(self.images), self.labels)


def random_boxes(batch, side, num_classes):
    """Of each picture 6 of 120: label, center, width and height; the rest is labeled -1."""
    boxes = torch.full((batch, 120, 5), -1.0)
    extents = torch.empty(batch, 6, 2).uniform_(0.1, 0.5)
    boxes[:, :6, 0] = torch.randint(0, num_classes, (batch, 6)).float()
    boxes[:, :6, 1:3] = side * (extents / 2 + torch.rand_like(extents) * (1 - extents))
    boxes[:, :6, 3:] = side * extents
    return boxes


class BoxTrainer(PictureTrainer):
    SIDE, CLASSES = 416, 80

    def make(self, name, batch):
        boxes = random_boxes(batch, self.SIDE, self.CLASSES)
        self.l1_weight = torch.zeros(batch)
        images = 255 * torch.rand(batch, 3, self.SIDE, self.SIDE)
        return yolox_model.Yolox(name, self.CLASSES), images, boxes

    def loss(self):
        made = self.model(self.images)
        return yolox_model.loss_of(made, self.labels, self.l1_weight, self.SIDE, self.SIDE, torch.float32)


class TextTrainer(Trainer):
    def __init__(self, case, variant):
        name, batch, _ = parse_case(case)
        model = self.make(name, batch)
        if variant.endswith("-pure"):
            model = model.to(torch.bfloat16)
        self.parameters = [weight for weight in model.parameters() if weight.requires_grad]
        self.model = torch.compile(model) if variant.startswith("compile") else model
        self.autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=variant.endswith("-autocast"))
        self.optimizer = self.make_optimizer(fused=True)

    def make(self, name, batch):
        name, _, adapter = name.partition("_")
        self.tokens = random_tokens(batch, CONTEXT[name])
        model = make_llama(name)
        return add_lora(model) if adapter == "lora" else model

    def make_optimizer(self, **kind):
        return torch.optim.AdamW(self.parameters, lr=TEXT_RATE, weight_decay=0.01, **kind)

    def loss(self):
        return self.model(input_ids=self.tokens, labels=self.tokens, use_cache=False).loss


class Dit(torch.nn.Module):
    SIDE, CHANNELS, CLASSES = 32, 4, 1000

    def __init__(self, batch):
        from diffusers import DiTTransformer2DModel  # Memory that other cases do not need.

        super().__init__()
        self.model = DiTTransformer2DModel(
            num_attention_heads=6,
            attention_head_dim=64,
            in_channels=self.CHANNELS,
            out_channels=self.CHANNELS,
            num_layers=12,
            sample_size=self.SIDE,
            patch_size=4,
            num_embeds_ada_norm=self.CLASSES,
        )
        self.shape = (batch, self.CHANNELS, self.SIDE, self.SIDE)
        self.labels = torch.randint(0, self.CLASSES, (batch,))
        self.time = torch.full((batch,), 500)

    def forward(self, latents):
        return self.model(latents, timestep=self.time, class_labels=self.labels).sample


class Flux(torch.nn.Module):
    SIDE, TEXT, WIDTH = 16, 64, 256

    def __init__(self, batch):
        from diffusers import FluxTransformer2DModel

        super().__init__()
        self.model = FluxTransformer2DModel(
            in_channels=64,
            num_layers=2,
            num_single_layers=4,
            attention_head_dim=64,
            num_attention_heads=8,
            joint_attention_dim=self.WIDTH,
            pooled_projection_dim=self.WIDTH,
            axes_dims_rope=(16, 24, 24),
        )
        self.shape = (batch, self.SIDE**2, 64)
        ids = torch.zeros(self.SIDE, self.SIDE, 3)
        ids[..., 1] = torch.arange(self.SIDE)[:, None]
        ids[..., 2] = torch.arange(self.SIDE)
        self.ids = {"img_ids": ids.view(-1, 3), "txt_ids": torch.zeros(self.TEXT, 3)}
        self.time = torch.full((batch,), 0.5)
        self.text = torch.nn.Buffer(torch.randn(batch, self.TEXT, self.WIDTH))
        self.pooled = torch.nn.Buffer(torch.randn(batch, self.WIDTH))

    def forward(self, tokens):
        return self.model(
            tokens, encoder_hidden_states=self.text, pooled_projections=self.pooled, timestep=self.time, **self.ids
        ).sample


DENOISERS = {"dit_s4": Dit, "flux_tiny": Flux}


class DenoiserTrainer(TextTrainer):
    """The mean squared error of what a denoiser of diffusers makes of latents."""

    def make(self, name, batch):
        model = DENOISERS[name](batch)
        self.latents, self.target = torch.randn(model.shape), torch.randn(model.shape)
        return model

    def loss(self):
        made = self.model(self.latents.to(self.parameters[0].dtype))
        return torch.nn.functional.mse_loss(made.float(), self.target)


class Answerer(Runner):
    """Greedy answers with a cache of keys and values; compiled, it is one of fixed size."""

    def __init__(self, case, variant):
        name, batch, _ = parse_case(case)
        self.model = make_llama(name.partition("_")[0]).eval()
        self.prompt = random_tokens(batch, PROMPT_TOKENS)
        self.options = {"do_sample": False, "max_new_tokens": ANSWER_TOKENS, "pad_token_id": 0}
        if variant == "compile":
            self.model.forward = torch.compile(self.model.forward)
            self.options["cache_implementation"] = "static"

    def step(self):
        with torch.inference_mode():
            made = self.model.generate(self.prompt, attention_mask=torch.ones_like(self.prompt), **self.options)
        assert made.shape[1] == PROMPT_TOKENS + ANSWER_TOKENS, made.shape


def open_runner(case, variant):
    torch.manual_seed(0)
    name = parse_case(case)[0]
    if name in SEGMENTERS:
        return MaskTrainer(case, variant)
    if name.startswith("yolox"):
        return BoxTrainer(case, variant)
    if name in DENOISERS:
        return DenoiserTrainer(case, variant)
    if not name.startswith("llama"):
        return PictureTrainer(case, variant)
    return Answerer(case, variant) if name.endswith("_answer") else TextTrainer(case, variant)


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case")
    parser.add_argument("variant")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    if options.variant not in variants_of(options.case):
        parser.error(f"expected a variant among {', '.join(variants_of(options.case))}, got '{options.variant}'")
    torch.set_num_threads(options.threads)
    spawned = float(os.environ.get("HEARTH_BENCH_SPAWNED", time.monotonic()))

    runner = open_runner(options.case, options.variant)
    runner.step()
    first_step_seconds = time.monotonic() - spawned
    runner.tune()
    for line in sys.stdin:
        seconds = runner.run(json.loads(line)["run"])
        answer = {
            "step_seconds": seconds,
            "peak_rss_bytes": peak_rss_bytes(),
            "first_step_seconds": first_step_seconds,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
