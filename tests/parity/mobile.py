"""MobileNetV3 and EfficientNet against torch from the same weights on the same pictures: python tests/parity/mobile.py [CASE...].

Per case: the first step's gradients within 1e-5 of float64 (relative to each tensor's largest element) or twice as far as torch's
float32 is; the losses of 20 steps within 1e-4, and the running statistics after them. Needs ./hearth (tools/build).
"""

import argparse
import copy
import sys

import torch
from mobile_model import MODELS
from parity import (
    LOSS_TOLERANCE,
    descend,
    dumped_gap,
    gradient_gap,
    gradients,
    hearth_train,
    judge_gradients,
    logged_losses,
    put_batch,
    put_weights,
    relative_gap,
    run_checks,
    within,
    write_sgd_recipe,
)
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

STEPS, BATCH, CLASSES = 20, 8, 10
RATE = 1e-3
STATISTICS_TOLERANCE = 1e-4
# Model, width of its stem, side of its pictures.
CASES = {
    "mobilenet_v3_small": ("mobilenet_v3_small", 16, 64),
    "mobilenet_v3_small of small pictures": ("mobilenet_v3_small", 16, 32),
    "mobilenet_v3_large": ("mobilenet_v3_large", 16, 64),
    "mobilenet_v3_large, narrow": ("mobilenet_v3_large", 12, 64),
    "efficientnet_b0": ("efficientnet_b0", 32, 64),
    "efficientnet_b0, narrow, of small pictures": ("efficientnet_b0", 16, 32),
}


def make_model(case):
    """With norms before an activation whose outputs mostly lie where it is nearly straight, so that rounding grows little from
    layer to layer."""
    name, width, side = CASES[case]
    torch.manual_seed(3)
    model = MODELS[name](width, side, CLASSES)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Sequential) and len(module) == 3 and isinstance(module[1], nn.BatchNorm2d):
                module[1].weight.uniform_(0.4, 0.6)
                module[1].bias.fill_(1)
    return model


def pictures(side, count, seed):
    """Each with a brightness and contrast of its own, so that no channel's mean is the same in all."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, side, side, generator=generator)
    images = images * (0.5 + torch.rand(count, 3, 1, 1, generator=generator))
    images = images + torch.randn(count, 3, 1, 1, generator=generator)
    return images, torch.randint(0, CLASSES, (count,), generator=generator)


def write_recipe(folder, case, model, images, labels, steps):
    name, width, side = CASES[case]
    folder.mkdir(exist_ok=True)
    put_weights(folder / "init.safetensors", model)
    put_batch(folder, images, labels)
    keys = {
        "model": {"name": name, "num_classes": CLASSES, "width": width, "dropout": 0.0},
        "data": {
            "kind": "tensors",
            "path": str(folder / "data.safetensors"),
            "image_size": side,
            "shuffle": False,
            "flip": False,
            "crop_padding": 0,
        },
    }
    return write_sgd_recipe(folder, RATE, steps, BATCH, keys)


def check_gradients(case, folder):
    """Of five batches: in one of them rounding may decide about a kink, there or here."""
    model = make_model(case)
    gaps, own = [], []
    for seed in range(1, 6):
        batch = pictures(CASES[case][2], BATCH, seed)
        exact = gradients(model, *batch, torch.float64)
        own.append(gradient_gap(gradients(model, *batch, torch.float32), exact))
        inside = folder / str(seed)
        gaps.append(dumped_gap(write_recipe(inside, case, model, *batch, 1), inside, exact))
    return judge_gradients(case, gaps, own)


def check_losses(case, folder):
    model = make_model(case)
    images, labels = pictures(CASES[case][2], BATCH * STEPS, 77)
    exact = copy.deepcopy(model).double()
    optimizer = torch.optim.SGD(exact.parameters(), lr=RATE, momentum=0.9)
    losses = descend(
        optimizer,
        (
            functional.cross_entropy(exact(images[at : at + BATCH].double()), labels[at : at + BATCH])
            for at in range(0, len(labels), BATCH)
        ),
    )
    run = hearth_train(folder / "run", [write_recipe(folder, case, model, images, labels, STEPS)])
    gap = relative_gap(logged_losses(run), losses)
    found = load_file(run / "best.safetensors")
    moved = {name: value for name, value in exact.named_buffers() if "running" in name}
    apart, worst = gradient_gap(found, moved)
    within(STATISTICS_TOLERANCE, apart, f"{case}: running statistics within {apart:.1e} ({worst})")
    text = f"{case}: losses within {gap:.1e} of float64 over {STEPS} steps, running statistics within {apart:.1e}"
    return within(LOSS_TOLERANCE, gap, text)


def checks(names):
    for name in names:
        yield f"{name} gradients", lambda folder, name=name: check_gradients(name, folder)
        yield f"{name} losses", lambda folder, name=name: check_losses(name, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"among {', '.join(CASES)}; all by default")
    return run_checks(checks(parser.parse_args().cases or list(CASES)))


if __name__ == "__main__":
    sys.exit(main())
