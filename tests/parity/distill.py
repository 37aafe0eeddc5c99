"""Distillation against torch in float64: python tests/parity/distill.py.

A teacher is captured (hearth distill capture), then a student learns from the file with each divergence. The formula is
TRL's generalized_jsd_loss, applied to the classes of DistillFormula (the listed tokens, and all others as one), plus
cross-entropy: gradients of the first micro-batch and 10 losses. TRL's own function is compared where it is installed.
Image classifiers learn from a second one, with batch norm in evaluation mode, by the same formula over all classes.
Needs ./hearth (tools/build).
"""

import copy
import math
import struct
import sys

import torch
from safetensors.torch import load_file, save_file

from language import BATCH, CONTEXT, EAGER, VOCAB, loss_of, make_model, row, tokens_for, train_on
from parity import (
    GRADIENT_BATCH,
    descend,
    gradient_gap,
    hearth,
    kink_free_batch,
    logged_losses,
    make_optimizer,
    relative_gap,
    run_checks,
    run_hearth,
    synthetic_batch,
    within,
    write_recipe,
)
from parity import make_model as make_image_model

STEPS = 10
RATE = 1e-3
TOLERANCE = 1e-5
BLOCK = 1024
WEIGHT = 0.7
CASES = [  # loss, beta, temperature, top k
    ("forward", 0.0, 1.0, VOCAB),
    ("reverse", 1.0, 1.0, VOCAB),
    ("jsd", 0.3, 2.0, VOCAB),
    ("forward", 0.0, 2.0, 8),
    ("reverse", 1.0, 1.5, 8),
    ("jsd", 0.7, 1.0, 8),
]


def read_teacher(path):
    """Returns the ids and log-probabilities of a teacher file, [entries, top k]."""
    data = path.read_bytes()
    k, _ = struct.unpack_from("<II", data, 8)
    (count,) = struct.unpack_from("<Q", data, 16)
    ids, logps, at = [], [], 64
    for first in range(0, count, BLOCK):
        n = min(BLOCK, count - first)
        ids.append(torch.frombuffer(bytearray(data[at : at + 4 * n * k]), dtype=torch.int32).view(n, k))
        logps.append(torch.frombuffer(bytearray(data[at + 4 * n * k : at + 6 * n * k]), dtype=torch.float16).view(n, k))
        at += 6 * n * k + 8
    return torch.cat(ids).long(), torch.cat(logps).double()


def divergence(student, teacher, beta, temperature):
    """Returns TRL's generalized_jsd_loss of logits [N, classes], averaged over tokens."""
    p = (student / temperature).log_softmax(-1)
    q = (teacher / temperature).log_softmax(-1)
    if beta in (0, 1):
        over, other = (q, p) if beta == 0 else (p, q)
        return (over.exp() * (over - other)).sum(-1).mean()
    m = torch.logsumexp(torch.stack([p + math.log(1 - beta), q + math.log(beta)]), 0)
    return (beta * q.exp() * (q - m) + (1 - beta) * p.exp() * (p - m)).sum(-1).mean()


def trl_divergence():
    """Returns TRL's generalized_jsd_loss, or None if TRL is not installed."""
    try:
        from trl.experimental.gkd import GKDTrainer
    except ImportError:
        try:
            from trl import GKDTrainer
        except ImportError:
            return None
    return GKDTrainer.generalized_jsd_loss


def classes(logits, ids):
    """Returns the logits of the listed tokens and, unless all are listed, the logsumexp of the others."""
    listed = logits.gather(-1, ids)
    if ids.shape[-1] == logits.shape[-1]:
        return listed
    tail = logits.scatter(-1, ids, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.cat([listed, tail], -1)


def teacher_classes(logps, has_tail):
    if not has_tail:
        return logps
    tail = (1 - logps.exp().sum(-1, keepdim=True)).clamp(min=1e-6).log()
    return torch.cat([logps, tail], -1)


class Case:
    def __init__(self, folder, loss, beta, temperature, top_k, count):
        self.folder, self.beta, self.temperature = folder, beta, temperature
        self.tokens = tokens_for(count, seed=5)
        save_file({"tokens": self.tokens}, folder / "data.safetensors")
        teacher = make_model("llama")
        with torch.no_grad():
            for weight in teacher.parameters():
                weight += 0.05 * torch.randn(weight.shape)
        teacher.save_pretrained(folder / "teacher")
        data = folder / "data.safetensors"
        rows = [f"data.path={data}", f"data.val_path={data}", f"data.cache={folder / 'cache'}", f"data.context={CONTEXT}"]
        self.file = folder / "teacher.kd"
        hearth("distill", "capture", folder / "teacher", *rows, "--top-k", top_k, "--out", self.file)
        ids, logps = read_teacher(self.file)
        self.check_capture(teacher, ids, logps)
        self.ids, self.logps = ids, teacher_classes(logps, top_k < VOCAB)
        self.model = make_model("llama")
        keys = {"distill.from": self.file, "distill.weight": WEIGHT, "distill.temperature": temperature}
        keys |= {"distill.loss": loss} | ({"distill.beta": beta} if loss == "jsd" else {})
        self.keys = [f"{key}={value}" for key, value in keys.items()]

    def check_capture(self, teacher, ids, logps):
        with torch.no_grad():
            logits = copy.deepcopy(teacher).double()(row(self.tokens, 0)[0][None], use_cache=False).logits[0]
        exact = logits.log_softmax(-1).gather(-1, ids[:CONTEXT])
        assert exact.exp().sum(-1).min() >= logits.softmax(-1).topk(ids.shape[-1]).values.sum(-1).min() - 1e-6
        gap = (exact - logps[:CONTEXT]).abs().max().item()
        within(8e-3, gap, f"log-probabilities differ by {gap:.1e}")

    def loss(self, model, step):
        indices = range(step * BATCH, (step + 1) * BATCH)
        logits = model(torch.stack([row(self.tokens, i)[0] for i in indices]), use_cache=False).logits.flatten(0, 1)
        at = slice(step * BATCH * CONTEXT, (step + 1) * BATCH * CONTEXT)
        student = classes(logits, self.ids[at])
        found = divergence(student, self.logps[at], self.beta, self.temperature)
        if (theirs := trl_divergence()) is not None:
            with torch.no_grad():
                keys = {"beta": self.beta, "temperature": self.temperature, "reduction": "sum"}
                trl = theirs(student[None], self.logps[at][None], **keys).item() / student.shape[0]
                gap = abs(trl - found.item()) / found.item()
            within(TOLERANCE, gap, f"TRL's loss differs by {gap:.1e}")
        return (1 - WEIGHT) * loss_of(model, self.tokens, step * BATCH) + WEIGHT * self.temperature**2 * found

    def train(self, steps, arguments=()):
        self.model.save_pretrained(self.folder / "model")
        train = {"steps": steps, "batch": BATCH}
        return train_on(self.folder, "data.safetensors", RATE, {"context": CONTEXT}, train, [*self.keys, *arguments])


def check_gradients(case, folder):
    made = Case(folder, *case, BATCH)
    dump = folder / "gradients.safetensors"
    made.train(1, ["--dump-gradients", str(dump)])
    exact = copy.deepcopy(made.model).double()
    made.loss(exact, 0).backward()
    gap, worst = gradient_gap(load_file(dump), {name: weight.grad for name, weight in exact.named_parameters()})
    return within(TOLERANCE, gap, f"{case}: gradients within {gap:.1e} of float64 ({worst})")


def check_losses(case, folder):
    made = Case(folder, *case, BATCH * STEPS)
    losses = logged_losses(made.train(STEPS))
    exact = copy.deepcopy(made.model).double()
    optimizer = make_optimizer("adamw", exact.parameters(), RATE)
    wanted = descend(optimizer, (made.loss(exact, step) for step in range(STEPS)))
    gap = relative_gap(losses, wanted)
    return within(TOLERANCE, gap, f"{case}: {STEPS} losses, {wanted[0]:.3f} to {wanted[-1]:.3f}, within {gap:.1e} of float64")


IMAGE_CASES = [  # model, loss, beta, temperature
    ("simplecnn", "forward", 0.0, 4.0),
    ("simplecnn", "reverse", 1.0, 1.0),
    ("mlp", "forward", 0.0, 1.0),
    ("mlp", "jsd", 0.3, 2.0),
]
IMAGE_RATE = 5e-4


class ImageCase:
    """A teacher that Hearth trained for a step, and a student with other weights."""

    def __init__(self, folder, case):
        self.name, loss, self.beta, self.temperature = case
        self.folder = folder
        self.teacher = make_image_model(self.name)
        with torch.no_grad():
            for weight in self.teacher.parameters():
                weight += 0.1 * torch.randn(weight.shape)
        (folder / "teacher").mkdir()
        recipe = write_recipe(folder / "teacher", self.name, "sgd", 1e-3, 16, 1)
        run = run_hearth(folder / "teacher", [recipe], self.teacher, *synthetic_batch(self.name, 16, seed=3))
        best = run / "best.safetensors"
        self.teacher.load_state_dict(load_file(best if best.exists() else run / "model.safetensors"), strict=False)
        self.teacher.double().eval()
        self.keys = [f"distill.from={run}", f"distill.weight={WEIGHT}", f"distill.temperature={self.temperature}"]
        self.keys += [f"distill.loss={loss}"] + ([f"distill.beta={self.beta}"] if loss == "jsd" else [])
        self.model = make_image_model(self.name)

    def loss(self, model, images, labels):
        logits = model(images.double())
        with torch.no_grad():
            taught = self.teacher(images.double())
        found = divergence(logits, taught, self.beta, self.temperature)
        entropy = torch.nn.functional.cross_entropy(logits, labels)
        return (1 - WEIGHT) * entropy + WEIGHT * self.temperature**2 * found

    def train(self, batch, steps, images, labels, arguments=()):
        recipe = write_recipe(self.folder, self.name, "sgd", IMAGE_RATE, batch, steps, passes_off=["winograd"])
        return run_hearth(self.folder, [recipe, *self.keys, *arguments], self.model, images, labels)


def check_image_gradients(case, folder):
    made = ImageCase(folder, case)
    images, labels = kink_free_batch(made.name, made.model)
    dump = folder / "gradients.safetensors"
    made.train(GRADIENT_BATCH[made.name], 1, images, labels, ["--dump-gradients", dump])
    exact = copy.deepcopy(made.model).double()
    made.loss(exact, images, labels).backward()
    gap, worst = gradient_gap(load_file(dump), {name: weight.grad for name, weight in exact.named_parameters()})
    return within(TOLERANCE, gap, f"{case}: gradients within {gap:.1e} of float64 ({worst})")


def check_image_losses(case, folder):
    made = ImageCase(folder, case)
    batch = 16
    images, labels = synthetic_batch(made.name, batch * STEPS, seed=7)
    losses = logged_losses(made.train(batch, STEPS, images, labels))
    exact = copy.deepcopy(made.model).double()
    optimizer = make_optimizer("sgd", exact.parameters(), IMAGE_RATE)
    batches = zip(images.split(batch), labels.split(batch), strict=True)
    wanted = descend(optimizer, (made.loss(exact, *each) for each in batches))
    gap = relative_gap(losses, wanted)
    text = f"{case}: {STEPS} losses, {wanted[0]:.3f} to {wanted[-1]:.3f}, within {gap:.1e} of float64"
    return within(TOLERANCE, gap, text)


def checks():
    for case in IMAGE_CASES:
        yield f"{case} gradients", lambda folder, case=case: check_image_gradients(case, folder)
        yield f"{case} losses", lambda folder, case=case: check_image_losses(case, folder)
    for case in CASES:
        yield f"{case} gradients", lambda folder, case=case: check_gradients(case, folder)
        yield f"{case} losses", lambda folder, case=case: check_losses(case, folder)


if __name__ == "__main__":
    if trl_divergence() is None:
        print("SKIPPED: the comparison with TRL's own function, because trl is not installed; pip install trl")
    sys.exit(run_checks(checks()))
