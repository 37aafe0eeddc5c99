"""Segmentation against torch from the same weights on the same pictures: python tests/parity/segment.py [CASE...].

Per case: the evaluation's predicted masks, the first step's gradients within 1e-5 of float64 (relative to each tensor's largest
element) or twice as far as torch's float32 is, and the losses of 20 steps within 1e-4. Needs ./hearth (tools/build).
"""

import argparse
import copy
import os
import pathlib
import re
import sys

import numpy
import torch
from parity import (
    dumped_gap,
    gradient_gap,
    hearth,
    hearth_train,
    judge_gradients,
    logged_losses,
    put_weights,
    relative_gap,
    run_checks,
    within,
    write_sgd_recipe,
)
from PIL import Image
from segment_model import Dilated, UNet, UNetResNet18
from torch import nn
from torch.nn import functional

STEPS = 20
BATCH = 4
CLASSES = 4
LOSS_TOLERANCE = 1e-4


# Case: the model in Hearth, its width there, the side of its pictures, how to make the reference, further keys.
CASES = {
    "unet": ("unet", 4, 64, lambda: UNet(4, CLASSES), {}),
    "unet dice and focal, weighted": (
        "unet",
        4,
        64,
        lambda: UNet(4, CLASSES),
        {"loss": ["cross_entropy", "dice", "focal"], "class_weights": "given", "weights": [1.0, 0.5, 2.0, 1.5]},
    ),
    "unet_resnet18": ("unet_resnet18", 8, 48, lambda: UNetResNet18(8, CLASSES), {}),
    "fcn_resnet50": ("fcn_resnet50", 4, 33, lambda: Dilated(4, CLASSES, deeplab=False), {}),
    "deeplabv3_resnet50": ("deeplabv3_resnet50", 4, 33, lambda: Dilated(4, CLASSES, deeplab=True), {}),
}


def loss_of(made, masks, keys):
    """What Hearth's keys mean, by torch: unlabeled pixels are 255."""

    def one(logits):
        weights = torch.tensor(keys["weights"], dtype=logits.dtype) if "weights" in keys else None
        total = 0.0
        for kind in keys.get("loss", ["cross_entropy"]):
            if kind == "cross_entropy":
                total = total + functional.cross_entropy(logits, masks, weights, ignore_index=255)
                continue
            labeled = masks != 255
            if kind == "focal":
                plain = functional.cross_entropy(logits, masks, ignore_index=255, reduction="none")
                scale = torch.ones(CLASSES, dtype=logits.dtype) if weights is None else weights
                of_pixel = scale[masks.clamp(max=CLASSES - 1)] * labeled
                total = total + (of_pixel * plain * (1 - torch.exp(-plain)) ** 2).sum() / of_pixel.sum()
            else:
                truth = functional.one_hot(masks.clamp(max=CLASSES - 1), CLASSES).permute(0, 3, 1, 2) * labeled[:, None]
                predicted = logits.softmax(1) * labeled[:, None]
                both = (truth * predicted).sum((0, 2, 3))
                total = total + 1 - ((2 * both + 1) / ((truth + predicted).sum((0, 2, 3)) + 1)).mean()
        return total

    loss = one(made["out"])
    return loss + 0.5 * one(made["aux"]) if "aux" in made else loss


def pictures(side, count, seed, noise=256):
    """Bytes of pictures, and masks of blocks of classes with unlabeled pixels among them. With less noise each picture has
    a brightness of its own."""
    random = numpy.random.default_rng(seed)
    brightness = random.integers(0, 257 - noise, (count, 1, 1, 3), dtype=numpy.uint8)
    images = random.integers(0, noise, (count, side, side, 3), dtype=numpy.uint8) + brightness
    blocks = random.integers(0, CLASSES, (count, 4, 4), dtype=numpy.uint8)
    masks = blocks.repeat(side // 4 + 1, 1).repeat(side // 4 + 1, 2)[:, :side, :side].copy()
    masks[random.random(masks.shape) < 0.05] = 255
    return images, masks


def tensors(images, masks):
    scaled = torch.from_numpy(images).permute(0, 3, 1, 2).to(torch.float32) / 255
    return (scaled - 0.5) / 0.5, torch.from_numpy(masks).long()


def make_model(make, calm=True):
    """With batch norms whose outputs keep away from zero, the kink of relu: a mask that rounding flips changes a gradient
    by far more than rounding does, in torch as well. Half of the channels are off, but where a shortcut is added."""
    torch.manual_seed(3)
    model = make()
    with torch.no_grad():
        for name, norm in model.named_modules():
            if not calm or not isinstance(norm, nn.BatchNorm2d):
                continue
            norm.weight.uniform_(0.1, 0.2)
            norm.bias.fill_(1)
            if not re.search(r"bn3|downsample|layer.*bn2", name):
                norm.bias[::2] = -1
    return model


def gradients(model, images, masks, keys, dtype):
    model = copy.deepcopy(model).to(dtype)
    loss_of(model(images.to(dtype)), masks, keys).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def put(folder, split, images, masks):
    for kind in ("images", "masks"):
        (folder / split / kind).mkdir(parents=True)
    for number, (image, mask) in enumerate(zip(images, masks, strict=True)):
        Image.fromarray(image).save(folder / split / "images" / f"{number:03}.png")
        Image.fromarray(mask).save(folder / split / "masks" / f"{number:03}.png")


def write_recipe(folder, case, model, images, masks, held_out, steps, rate):
    name, width, side, _, keys = CASES[case]
    put_weights(folder / "init.safetensors", model)
    put(folder, "train", images, masks)
    put(folder, "val", *held_out)
    own = {
        "model": {"name": name, "num_classes": CLASSES, "width": width, "dropout": 0.0},
        "data": {"kind": "masks", "path": str(folder), "image_size": side, "shuffle": False},
        "segment": keys,
    }
    return write_sgd_recipe(folder, rate, steps, BATCH, own)


def check_gradients(case, folder):
    """Of seven batches: in some of them rounding may decide about a relu, there or here."""
    name, _, side, make, keys = CASES[case]
    # The other way round, gradients of what the next batch norm takes out are rounding alone.
    calm = not name.startswith("unet")
    model = make_model(make, calm=calm)
    gaps, own = [], []
    for seed in range(1, 8):
        # DeepLab's pooled branch divides by the deviation of the pictures' means.
        images, masks = pictures(side, BATCH, seed, noise=64 if calm else 256)
        inputs = tensors(images, masks)
        exact = gradients(model, *inputs, keys, torch.float64)
        own.append(gradient_gap(gradients(model, *inputs, keys, torch.float32), exact))
        inside = folder / str(seed)
        inside.mkdir()
        recipe = write_recipe(inside, case, model, images, masks, (images, masks), 1, 1e-3)
        gaps.append(dumped_gap(recipe, inside, exact))
    return judge_gradients(case, gaps, own)


def check_losses(case, folder):
    _, _, side, make, keys = CASES[case]
    model, rate = make_model(make), 0.02
    images, masks = pictures(side, BATCH * STEPS, 77)
    exact = copy.deepcopy(model).double()
    optimizer = torch.optim.SGD(exact.parameters(), lr=rate, momentum=0.9)
    losses, (inputs, labels) = [], tensors(images, masks)
    for at in range(0, len(images), BATCH):
        optimizer.zero_grad()
        loss = loss_of(exact(inputs[at : at + BATCH].double()), labels[at : at + BATCH], keys)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    recipe = write_recipe(folder, case, model, images, masks, pictures(side, 3, 5), STEPS, rate)
    gap = relative_gap(logged_losses(hearth_train(folder / "run", [recipe])), losses)
    return within(LOSS_TOLERANCE, gap, f"{case}: losses within {gap:.1e} of float64 over {STEPS} steps")


def check_prediction(case, folder):
    """The classes of pictures under weights and statistics of a trained model, and the mean IoU of a set."""
    _, _, side, make, _ = CASES[case]
    model = make_model(make)
    images, masks = pictures(side, 6, 11)
    with torch.no_grad():
        for _ in range(20):
            model(tensors(images, masks)[0])
    model.eval()
    recipe = write_recipe(folder, case, model, images, masks, (images, masks), 1, 0.0)
    run = hearth_train(folder / "run", [recipe, "optimizer.momentum=0"])
    put_weights(run / "best.safetensors", model)
    hearth("predict", run, folder / "val" / "images", "--out", folder / "predicted")
    with torch.no_grad():
        logits = copy.deepcopy(model).double()(tensors(images, masks)[0].double())["out"]
    expected = logits.argmax(1)
    # Where two classes are as good as equal, rounding may decide.
    first, second = logits.topk(2, dim=1).values.unbind(1)
    sure = first - second > 1e-4
    found = numpy.stack([numpy.array(Image.open(folder / "predicted" / f"{number:03}.png")) for number in range(6)])
    wrong = ((torch.from_numpy(found).long() != expected) & sure).sum().item()
    if wrong or sure.float().mean() < 0.9:
        raise AssertionError(f"{wrong} of {sure.sum().item()} pixels have another class")
    labeled = masks != 255
    iou = []
    for label in range(CLASSES):
        truth, predicted = labeled & (masks == label), labeled & (found == label)
        iou.append((truth & predicted).sum() / (truth | predicted).sum())
    said = float(hearth("eval", run).split("mIoU: ")[1].split(",")[0])
    return within(1e-4, abs(said - numpy.mean(iou)), f"{case}: {sure.sum().item()} pixels, mIoU {said}, as numpy has it")


def checks(names):
    for name in names:
        yield f"{name} gradients", lambda folder, name=name: check_gradients(name, folder)
        yield f"{name} losses", lambda folder, name=name: check_losses(name, folder)
        yield f"{name} predictions", lambda folder, name=name: check_prediction(name, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"among {', '.join(CASES)}; all by default")
    # With AVX-512, torch's gradients of convolutions of few channels write past their memory (oneDNN).
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    return run_checks(checks(parser.parse_args().cases or list(CASES)))


if __name__ == "__main__":
    sys.exit(main())
