"""Hearth against torch from the same weights on the same data: python tests/parity/parity.py [MODEL...].

Per model and optimizer: 20 steps of both in float32, whose losses agree to 1e-4, at a learning rate where torch's
float32 stays with torch's float64 (looked for and asserted). Per model: the first step's gradients, each tensor within
1e-5 of its float64 gradient, relative to the tensor's largest element. Needs ./hearth (tools/build).
"""

import argparse
import copy
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from unittest import mock

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from models import MLP, MODELS, image_shape, synthetic_batch  # noqa: E402

STEPS = 20
LOSS_TOLERANCE = 1e-4
GRADIENT_TOLERANCE = 1e-5
# Rounding alone moves torch's float32 this far from float64 at most: what is left of the tolerance is Hearth's.
OWN_LOSS_NOISE = LOSS_TOLERANCE / 2
BATCH = {"mlp": 64, "simplecnn": 32, "resnet18": 8}
GRADIENT_BATCH = {"mlp": 32, "simplecnn": 8, "resnet18": 4}
SEEDS = 60

OPTIMIZERS = {
    "sgd": {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
    "adamw": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2},
}
LEARNING_RATES = {"sgd": (0.02, 0.002, 0.0005), "adamw": (1e-3, 1e-4)}
# Over eighteen layers of batch norm on eight pictures, float32 strays from float64 at any larger rate.
RESNET_LEARNING_RATES = {"sgd": (2e-5, 5e-6), "adamw": (1e-6, 2e-7)}
# Hearth's keys for the same settings.
RECIPE_OPTIMIZERS = {
    "sgd": {"name": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
    "adamw": {"name": "adamw", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 1e-2},
}


def make_model(name):
    torch.manual_seed(1)
    # The two draw different dropout masks; with nothing dropped they compute the same.
    return MLP(dropout=0.0) if name == "mlp" else MODELS[name]()


def make_optimizer(kind, parameters, learning_rate):
    cls = torch.optim.SGD if kind == "sgd" else torch.optim.AdamW
    return cls(parameters, lr=learning_rate, **OPTIMIZERS[kind])


def descend(optimizer, losses):
    """The values of losses that are made one after the other, a step of the optimizer on each."""
    values = []
    for loss in losses:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


def torch_losses(model, optimizer_kind, learning_rate, images, labels, batch, dtype):
    model = copy.deepcopy(model).to(dtype)
    optimizer = make_optimizer(optimizer_kind, model.parameters(), learning_rate)
    return descend(
        optimizer,
        (
            functional.cross_entropy(model(images[at : at + batch].to(dtype)), labels[at : at + batch])
            for at in range(0, len(labels), batch)
        ),
    )


def relative_gap(losses, reference):
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))


def jittered(model):
    """The model with weights off by a few roundings: where training amplifies them, it would amplify Hearth's too."""
    model = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 1 + 1e-6 * torch.randn(weight.shape, generator=generator)
    return model


def stable_learning_rate(name, model, kind, images, labels, batch):
    """The first learning rate at which torch's float32, from weights off by rounding, stays with its float64; and
    its float64 losses."""
    rates = RESNET_LEARNING_RATES if name == "resnet18" else LEARNING_RATES
    for rate in rates[kind]:
        exact = torch_losses(model, kind, rate, images, labels, batch, torch.float64)
        single = torch_losses(jittered(model), kind, rate, images, labels, batch, torch.float32)
        gap = relative_gap(single, exact)
        # Where the loss overshoots, one flipped relu grows beyond any tolerance; whose flips first is chance.
        if gap <= OWN_LOSS_NOISE and max(exact) <= 1.5 * exact[0]:
            return rate, exact, gap
    raise AssertionError(f"torch's float32 strays from its float64, or the loss overshoots, at every rate tried")


def gradients(model, images, labels, dtype):
    model = copy.deepcopy(model).to(dtype)
    functional.cross_entropy(model(images.to(dtype)), labels).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def margin(model, images):
    """How near to a kink the batch comes in float64: the smallest |relu input| and gap between a pool's two largest."""
    smallest = []
    relu, max_pool = functional.relu, functional.max_pool2d

    def watched_relu(x, *args):
        smallest.append(x.abs().min().item())
        return relu(x, *args)

    def watched_pool(x, size, *args):
        windows = x.unfold(2, size, size).unfold(3, size, size).flatten(4)
        first, second = windows.topk(2, dim=-1).values.unbind(-1)
        smallest.append((first - second)[first > 0].min().item())
        return max_pool(x, size, *args)

    with torch.no_grad(), mock.patch.object(functional, "relu", watched_relu):
        with mock.patch.object(functional, "max_pool2d", watched_pool):
            copy.deepcopy(model).double()(images.double())
    return min(smallest)


def kink_free_batch(name, model):
    """The batch that keeps farthest from every kink, so that rounding flips no mask: a flipped mask changes a gradient
    by far more than rounding does, in torch as well."""
    batches = (synthetic_batch(name, GRADIENT_BATCH[name], seed) for seed in range(SEEDS))
    return max(batches, key=lambda batch: margin(model, batch[0]))


def gradient_gap(found, exact):
    """The largest error over tensors, relative to each tensor's largest element, and that tensor's name. A bias in
    front of a batch norm has the gradient zero; it is measured against the largest gradient of all."""
    largest = max(gradient.abs().max().item() for gradient in exact.values())
    worst = (0.0, "")
    for name, gradient in exact.items():
        scale = gradient.abs().max().item()
        scale = scale if scale > 1e-9 * largest else largest
        worst = max(worst, ((found[name].double() - gradient).abs().max().item() / scale, name))
    return worst


def write_recipe(folder, name, kind, rate, batch, steps, passes_off=()):
    channels, size, _ = image_shape(name)
    recipe = {
        "seed": 1,
        "init": str(folder / "init.safetensors"),
        "model": {"name": name, "num_classes": 10, "dropout": 0.0},
        "data": {
            "kind": "tensors",
            "path": str(folder / "data.safetensors"),
            "image_size": size,
            "channels": channels,
            "shuffle": False,
            "flip": False,
            "crop_padding": 0,
        },
        "optimizer": {**RECIPE_OPTIMIZERS[kind], "lr": rate},
        "schedule": {"name": "constant"},
        "passes": {"off": list(passes_off)},
        "train": {"steps": steps, "batch": batch, "log_every": 1},
    }
    return write_yaml(folder, recipe)


def write_yaml(folder, recipe):
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(recipe))  # JSON is YAML.
    return path


def write_sgd_recipe(folder, rate, steps, batch, keys):
    """From init.safetensors, with momentum at a constant rate; `keys` are the case's own sections."""
    return write_yaml(
        folder,
        {
            "init": str(folder / "init.safetensors"),
            "optimizer": {"name": "sgd", "lr": rate, "momentum": 0.9},
            "schedule": {"name": "constant"},
            # Winograd rounds three to four times as coarsely as a direct convolution.
            "passes": {"off": ["winograd"]},
            "train": {"steps": steps, "batch": batch, "log_every": 1},
            **keys,
        },
    )


def put_weights(file, model):
    state = {key: value for key, value in model.state_dict().items() if not key.endswith("num_batches_tracked")}
    save_file(state, file)


def put_batch(folder, images, labels):
    save_file({"images": images, "labels": labels.to(torch.int32)}, folder / "data.safetensors")


def run_hearth(folder, arguments, model, images, labels):
    """Trains from the model's weights; returns the run folder."""
    put_weights(folder / "init.safetensors", model)
    put_batch(folder, images, labels)
    return hearth_train(folder / "run", arguments)


def hearth(verb, *arguments):
    """What the program prints."""
    done = subprocess.run(
        [str(ROOT / "hearth"), verb, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout[-800:]
        raise AssertionError(f"hearth {verb} ended with {done.returncode}: {said}")
    return done.stdout


def hearth_train(run, arguments):
    hearth("train", *arguments, "--out", run)
    return run


def logged_losses(run):
    records = map(json.loads, (run / "trainer_log.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if "loss" in record]


def within(tolerance, gap, text):
    if not gap <= tolerance:
        raise AssertionError(f"{text}; at most {tolerance:g} is expected")
    return text


def check_losses(name, kind, folder):
    model, batch = make_model(name), BATCH[name]
    images, labels = synthetic_batch(name, batch * STEPS, seed=7)
    rate, exact, own = stable_learning_rate(name, model, kind, images, labels, batch)
    recipe = write_recipe(folder, name, kind, rate, batch, STEPS)
    losses = logged_losses(run_hearth(folder, [str(recipe)], model, images, labels))
    if len(losses) != STEPS:
        raise AssertionError(f"expected {STEPS} losses in the log, got {len(losses)}")
    gap = relative_gap(losses, exact)
    text = f"{name} {kind}: losses within {gap:.1e} of float64 (torch {own:.1e}) over {STEPS} steps, lr {rate:g}"
    return within(LOSS_TOLERANCE, gap, text)


def check_gradients(name, folder):
    model = make_model(name)
    images, labels = kink_free_batch(name, model)
    exact = gradients(model, images, labels, torch.float64)
    own, _ = gradient_gap(gradients(model, images, labels, torch.float32), exact)
    # Winograd rounds three to four times as coarsely as a direct convolution, enough to flip a mask even here.
    recipe = write_recipe(folder, name, "sgd", 1e-3, GRADIENT_BATCH[name], 1, passes_off=["winograd"])
    dump = folder / "gradients.safetensors"
    run_hearth(folder, [str(recipe), "--dump-gradients", str(dump)], model, images, labels)
    found = load_file(dump)
    missing = sorted(set(exact) - set(found))
    if missing:
        raise AssertionError(f"expected a gradient of every weight, got none of {', '.join(missing)}")
    gap, worst = gradient_gap(found, exact)
    text = f"{name}: gradients within {gap:.1e} of float64 ({worst}; torch {own:.1e})"
    return within(GRADIENT_TOLERANCE, gap, text)


def dumped_gap(recipe, folder, exact):
    """How far the first step's gradients are from `exact`, of the same weights, and where that is."""
    dump = folder / "gradients.safetensors"
    hearth_train(folder / "run", [recipe, "--dump-gradients", dump])
    found = load_file(dump)
    missing = sorted(set(exact) ^ set(found))
    if missing:
        raise AssertionError(f"expected gradients of the same weights, got others: {', '.join(missing)}")
    return gradient_gap(found, exact)


def judge_gradients(case, gaps, own):
    """Of each batch what gradient_gap says of Hearth and of torch's float32: their medians within the tolerance, or
    Hearth's within twice torch's."""
    (gap, worst), (of_torch, _) = statistics.median_low(gaps), statistics.median_low(own)
    text = f"{case}: gradients within {gap:.1e} of float64 ({worst}; torch {of_torch:.1e})"
    if len(gaps) > 1:
        text += f", the median of {len(gaps)} batches"
    return within(max(GRADIENT_TOLERANCE, 2 * of_torch), gap, text)


def checks(names):
    for name in names:
        yield f"{name} gradients", lambda folder, name=name: check_gradients(name, folder)
        for kind in OPTIMIZERS:
            yield f"{name} {kind}", lambda folder, name=name, kind=kind: check_losses(name, kind, folder)


def run_checks(titled):
    """Runs each (title, check) in a folder of its own; a check returns what it found and fails by AssertionError."""
    failed = 0
    for title, check in titled:
        with tempfile.TemporaryDirectory() as folder:
            try:
                line = f"ok     {check(pathlib.Path(folder))}"
            except AssertionError as error:
                failed += 1
                line = f"FAILED {title}: {error}"
        print(line, flush=True)
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help=f"among {', '.join(MODELS)}; all by default")
    names = parser.parse_args().models or list(MODELS)
    return run_checks(checks(names))


if __name__ == "__main__":
    sys.exit(main())
