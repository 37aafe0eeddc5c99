"""Direct preference optimization against torch, from the same folder and file: python tests/parity/dpo.py.

transformers renders, tokenizes and masks each answer and runs it alone in float64; the loss is TRL's sigmoid loss with
its label smoothing, the reference a copy of the model as it was loaded (with its adapter). Hearth gets the folder and
the JSONL file: 20 losses with accumulation and the first micro-batch's gradients within 1e-4, and the rewards of the
last evaluation. Needs ./hearth (tools/build).
"""

import copy
import json
import random
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch.nn.functional import logsigmoid

from chat import CONTEXT, WORDS, make_model, make_tokenizer, one_to_a_row, tokenize
from language import train_on
from parity import descend, gradient_gap, logged_losses, make_optimizer, relative_gap, run_checks, within

STEPS = 20
TOLERANCE = 1e-4
BATCH = 2
ACCUMULATE = 3
RATE = 5e-4
COUNT = 25
BETA = 0.3


def preferences():
    draw = random.Random(6)

    def turn(role, most):
        return {"role": role, "content": " ".join(draw.choices(WORDS, k=draw.randint(1, most)))}

    made = []
    for i in range(COUNT):
        prompt = [turn("user", 5)] if i % 3 else [turn("user", 5), turn("assistant", 5), turn("user", 5)]
        made.append({"prompt": prompt, "chosen": [turn("assistant", 8)], "rejected": [turn("assistant", 12)]})
    return made


def answer(tokenizer, prompt, said):
    """The tokens, and which of them the last turn of the assistant is."""
    ids, trained = tokenize(tokenizer, prompt + said)
    last = trained.nonzero().max()
    gaps = (~trained[:last]).nonzero()
    first = gaps.max() + 1
    mask = torch.zeros_like(trained)
    mask[first : last + 1] = True
    return ids, mask


def logps(model, pair):
    """Sums over the answers, chosen and rejected."""
    sums = []
    for ids, mask in pair:
        logits = model(ids[None], use_cache=False).logits[0, :-1].log_softmax(-1)
        sums.append(logits.gather(1, ids[1:, None])[mask[1:]].sum())
    return torch.stack(sums)


def dpo_loss(policy, reference, smoothing):
    """TRL's DPOTrainer with loss_type sigmoid."""
    logits = (policy[:, 0] - policy[:, 1]) - (reference[:, 0] - reference[:, 1])
    losses = -logsigmoid(BETA * logits) * (1 - smoothing) - logsigmoid(-BETA * logits) * smoothing
    return losses.mean()


class Case:
    """A small Llama, its tokenizer and a file of preferences in a folder, with or without an adapter of PEFT."""

    def __init__(self, folder, lora, smoothing):
        self.folder, self.smoothing = folder, smoothing
        records = preferences()
        tokenizer = make_tokenizer([r["prompt"] + r["chosen"] + r["rejected"] for r in records])
        model = make_model(len(tokenizer))
        model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        (folder / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        self.adapter = []
        if lora:
            model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))
            with torch.no_grad():
                for name, weight in model.named_parameters():
                    if "lora_B" in name:  # It starts as zeros, which would hide mistakes.
                        weight += 0.05 * torch.randn(weight.shape)
            model.save_pretrained(folder / "theirs", save_embedding_layers=False)
            self.adapter = [f"adapter.path={folder / 'theirs'}"]
        self.model = model.double()
        self.pairs = [[answer(tokenizer, r["prompt"], r[k]) for k in ("chosen", "rejected")] for r in records]
        lengths = [max(len(ids) for ids, _ in pair) for pair in self.pairs]
        assert CONTEXT // 2 < max(lengths) <= CONTEXT
        self.order = [row[0] for row in one_to_a_row(lengths)]
        with torch.no_grad():
            self.reference = self.logps(range(COUNT))

    def logps(self, indices):
        return torch.stack([logps(self.model, self.pairs[i]) for i in indices])

    def loss(self, indices):
        return dpo_loss(self.logps(indices), self.reference[list(indices)], self.smoothing)

    def train(self, arguments=()):
        data = {"context": CONTEXT}
        train = {"objective": "dpo", "steps": STEPS, "batch": BATCH, "accumulate": ACCUMULATE}
        options = [f"dpo.beta={BETA}", f"dpo.label_smoothing={self.smoothing}", *self.adapter, *arguments]
        return train_on(self.folder, "pairs.jsonl", RATE, data, train, options)

    def wanted(self):
        group = BATCH * ACCUMULATE
        epoch = [self.order[at : at + group] for at in range(0, COUNT, group)]
        optimizer = make_optimizer("adamw", [p for p in self.model.parameters() if p.requires_grad], RATE)
        return descend(optimizer, (self.loss(step) for step in (epoch * STEPS)[:STEPS]))

    def rewards(self):
        with torch.no_grad():
            chosen, rejected = (BETA * (self.logps(range(COUNT)) - self.reference)).T
        found = {"chosen": chosen, "rejected": rejected, "margins": chosen - rejected}
        return {**found, "accuracies": (chosen > rejected).double()}


def check_losses(folder, lora, smoothing):
    case = Case(folder, lora, smoothing)
    run = case.train()
    wanted = case.wanted()
    gap = relative_gap(logged_losses(run), wanted)
    last = json.loads((run / "trainer_log.jsonl").read_text().splitlines()[-1])
    for name, values in case.rewards().items():
        found, exact = last[f"eval_rewards/{name}"], values.mean().item()
        if not abs(found - exact) <= 1e-4 * max(1, abs(exact)):
            raise AssertionError(f"expected rewards/{name} of {exact}, got {found}")
    text = f"DPO of {'an adapter' if lora else 'all weights'}, smoothing {smoothing}"
    return within(TOLERANCE, gap, f"{text}: {STEPS} losses, {wanted[0]:.3f} to {wanted[-1]:.3f}, within {gap:.1e} of float64")


def check_gradients(folder):
    case = Case(folder, lora=False, smoothing=0.1)
    dump = folder / "gradients.safetensors"
    case.train(["--dump-gradients", str(dump), "train.steps=1"])
    case.loss(case.order[:BATCH]).backward()
    gradients = {name: weight.grad for name, weight in case.model.named_parameters()}
    gap, worst = gradient_gap(load_file(dump), gradients)
    return within(TOLERANCE, gap, f"DPO: {len(gradients)} gradients within {gap:.1e} of float64 ({worst})")


if __name__ == "__main__":
    torch.set_num_threads(1)
    cases = [(False, 0.0), (False, 0.1), (True, 0.0)]
    checks = [(f"losses {c}", lambda folder, c=c: check_losses(folder, *c)) for c in cases]
    sys.exit(run_checks([("gradients", check_gradients), *checks]))
