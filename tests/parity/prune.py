"""hearth prune against torch: python tests/parity/prune.py.

Wanda as its authors' code computes it (github.com/locuslab/wanda: lib/prune.py, lib/layerwrapper.py), in float64, and
torch.nn.utils.prune's l1_unstructured: every mask is equal. Needs ./hearth (tools/build).
"""

import sys

import torch
from safetensors.torch import load_file, save_file
from torch.nn.utils import prune
from transformers.pytorch_utils import Conv1D

from language import CONTEXT, make_model, row, tokens_for
from parity import hearth, run_checks

ROWS = 6
# The sizes of these models divide by 8.
FAMILIES = ["llama", "qwen2", "phi3", "gpt2"]
PATTERNS = [("unstructured", 0.5), ("unstructured", 0.37), ("2:4", 0.5), ("4:8", 0.5)]


def layers_of(model):
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def linears_of(layer):
    return [module for module in layer.modules() if isinstance(module, (torch.nn.Linear, Conv1D))]


def matrix(module):
    """Returns the weight as [out, in]; a view."""
    return module.weight.data.t() if isinstance(module, Conv1D) else module.weight.data


class Norms:
    """WrappedGPT of the original: the mean over samples of the squared norms of a layer's inputs."""

    def __init__(self, module):
        self.scaler, self.samples = torch.zeros(matrix(module).shape[1], dtype=torch.float64), 0
        self.hook = module.register_forward_hook(lambda _, inputs, __: self.add(inputs[0]))

    def add(self, inputs):
        count = inputs.shape[0]
        inputs = inputs.reshape(-1, inputs.shape[-1]).t()
        self.scaler *= self.samples / (self.samples + count)
        self.samples += count
        self.scaler += torch.norm(inputs, p=2, dim=1) ** 2 / self.samples


def mask_of(metric, pattern, sparsity):
    """Returns True for weights to prune, as prune_wanda of the original."""
    mask = torch.zeros_like(metric) == 1
    if pattern == "unstructured":
        order = torch.sort(metric, dim=-1, stable=True)[1]
        return mask.scatter_(1, order[:, : int(metric.shape[1] * sparsity)], True)
    pruned, group = map(int, pattern.split(":"))
    for first in range(0, metric.shape[1], group):
        part = metric[:, first : first + group]
        mask.scatter_(1, first + torch.topk(part, pruned, dim=1, largest=False)[1], True)
    return mask


@torch.no_grad()
def prune_wanda(model, rows, pattern, sparsity):
    for layer in layers_of(model):
        norms = [(module, Norms(module)) for module in linears_of(layer)]
        for tokens in rows:
            model(tokens[None], use_cache=False)
        for module, found in norms:
            found.hook.remove()
            weight = matrix(module)
            weight[mask_of(weight.abs() * found.scaler.sqrt()[None], pattern, sparsity)] = 0


@torch.no_grad()
def prune_magnitude(model, pattern, sparsity):
    for layer in layers_of(model):
        for module in linears_of(layer):
            if pattern == "unstructured":
                prune.l1_unstructured(module, "weight", amount=sparsity)
                prune.remove(module, "weight")
            else:
                weight = matrix(module)
                weight[mask_of(weight.abs(), pattern, sparsity)] = 0


def check_masks(method, family, pattern, sparsity, folder):
    tokens = tokens_for(ROWS, seed=3)
    save_file({"tokens": tokens}, folder / "data.safetensors")
    model = make_model(family)
    model.save_pretrained(folder / "model")
    keys = ["--sparsity", sparsity, "--pattern", pattern, "--method", method, "--out", folder / "pruned"]
    data = folder / "data.safetensors"
    if method == "wanda":
        keys += ["--data", data, f"data.val_path={data}", f"data.cache={folder / 'cache'}", f"data.context={CONTEXT}"]
    hearth("prune", folder / "model", *keys)
    expected = model.double()
    if method == "wanda":
        prune_wanda(expected, [row(tokens, i)[0] for i in range(ROWS)], pattern, sparsity)
    else:
        prune_magnitude(expected, pattern, sparsity)
    found, count, zeros = load_file(folder / "pruned" / "model.safetensors"), 0, 0
    for name, weight in expected.state_dict().items():
        if name not in found:
            continue  # A head that is tied to the embeddings.
        assert torch.equal(found[name], weight.float()), f"{name} differs"
        count += 1
        zeros += (weight == 0).sum().item() if weight.ndim > 1 else 0
    return f"{method} {family} {pattern} {sparsity}: {count} tensors are equal, with {zeros} zeros"


def checks():
    for method in ("wanda", "magnitude"):
        for family in FAMILIES:
            for pattern, sparsity in PATTERNS:
                case = (method, family, pattern, sparsity)
                yield f"{case}", lambda folder, case=case: check_masks(*case, folder)


if __name__ == "__main__":
    sys.exit(run_checks(checks()))
