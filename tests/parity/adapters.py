"""Adapters against PEFT, from the same weights on the same tokens: python tests/parity/adapters.py [FAMILY...].

Per family: 20 steps of LoRA in Hearth from an adapter that PEFT made, whose losses agree with PEFT's float64 within 1e-4
(PEFT's adapter loads in Hearth); the run folder loads in PEFT and gives the loss that Hearth logged; so does the folder
that `hearth merge` writes, whose logits are those of base and adapter, and which generates what they do. The same losses
with the base in nf4 and int8 against PEFT on the values that bitsandbytes' rules read back. Needs ./hearth (tools/build).
"""

import copy
import json
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from language import BATCH, LOSS_TOLERANCE, RATE, STEPS, loss_of, make_model, mean_loss, row, run_hearth, tokens_for
from parity import descend, hearth, logged_losses, make_optimizer, relative_gap, run_checks, within

LORA = {
    "llama": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]},
    "phi3": {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": ["qkv_proj", "gate_up_proj", "o_proj"]},
    "qwen2": {"r": 2, "lora_alpha": 2, "target_modules": "all-linear"},
    "mistral": {"r": 4, "lora_alpha": 8, "target_modules": ["k_proj"], "modules_to_save": ["lm_head"]},
}
SAME = 1e-6


def make_adapter(family, folder, random_b=True):
    """The family's small model and PEFT's adapter on it, both saved."""
    model = make_model(family)
    model.save_pretrained(folder / "model")
    torch.manual_seed(2)
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(task_type="CAUSAL_LM", **LORA[family]))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if random_b and "lora_B" in name:  # It starts as zeros, which would hide mistakes.
                weight += 0.05 * torch.randn(weight.shape)
    adapted.save_pretrained(folder / "theirs")
    return model, adapted


def losses_of(adapted, tokens):
    adapted = copy.deepcopy(adapted).double()
    optimizer = make_optimizer("adamw", [p for p in adapted.parameters() if p.requires_grad], RATE)
    return descend(optimizer, (loss_of(adapted, tokens, step * BATCH) for step in range(STEPS)))


def train(family, folder, steps):
    model, adapted = make_adapter(family, folder)
    tokens = tokens_for(BATCH * steps, seed=7)
    run = run_hearth(folder, model, tokens, steps, [f"adapter.path={folder / 'theirs'}"])
    return adapted, tokens, run


def check_losses(family, folder):
    adapted, tokens, run = train(family, folder, STEPS)
    gap = relative_gap(logged_losses(run), losses_of(adapted, tokens))
    return within(LOSS_TOLERANCE, gap, f"{family}: {STEPS} losses within {gap:.1e} of PEFT in float64")


def base_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder / "model", attn_implementation="eager", dtype=torch.float64)


def check_back(family, folder):
    """PEFT loads the run folder and gets the loss that Hearth logged; the names are those that PEFT writes."""
    _, tokens, run = train(family, folder, 4)
    theirs = load_file(folder / "theirs" / "adapter_model.safetensors")
    ours = load_file(run / "adapter_model.safetensors")
    if {k: v.shape for k, v in ours.items()} != {k: v.shape for k, v in theirs.items()}:
        raise AssertionError(f"expected the tensors {sorted(theirs)}, got {sorted(ours)}")
    if (run / "model.safetensors").exists():
        raise AssertionError("expected no copy of the base model in the run folder")
    last = json.loads((run / "trainer_log.jsonl").read_text().splitlines()[-1])
    loss = mean_loss(PeftModel.from_pretrained(base_of(folder), run).double(), tokens, 4)
    gap = abs(loss - last["eval_loss"]) / loss
    return within(1e-5, gap, f"{family}: PEFT loads the run and agrees on its loss to {gap:.1e}")


def check_auto(family, folder):
    """transformers finds the base model by adapter_config.json."""
    _, tokens, run = train(family, folder, 1)
    found = AutoModelForCausalLM.from_pretrained(run, attn_implementation="eager", dtype=torch.float64)
    wanted = PeftModel.from_pretrained(base_of(folder), run).double()
    gap = abs(mean_loss(found, tokens, 1) - mean_loss(wanted, tokens, 1))
    return within(SAME, gap, f"{family}: transformers loads the run by its folder, same loss to {gap:.1e}")


def merge(run, out, arguments=()):
    hearth("merge", "--adapter", run, "--out", out, *arguments)
    return AutoModelForCausalLM.from_pretrained(out, attn_implementation="eager", dtype=torch.float64)


def check_merge(family, folder):
    _, tokens, run = train(family, folder, 4)
    merged = merge(run, folder / "merged")
    wanted = PeftModel.from_pretrained(base_of(folder), run).double()
    text = row(tokens, 0)[0][None]
    with torch.no_grad():
        gap = (merged(text).logits - wanted(text).logits).abs().max().item()
    return within(1e-5, gap, f"{family}: merged logits within {gap:.1e} of base and adapter")


def greedy(model, prompt, arguments=()):
    words = hearth("generate", model, "--tokens", "--prompt", " ".join(map(str, prompt)), "--max-tokens", 30, *arguments)
    return words.split()


def check_generation(family, folder):
    """A run, PEFT's own adapter and the base generate as the merged models do; export writes what merge does."""
    _, tokens, run = train(family, folder, 4)
    prompt = tokens[:20].tolist()
    found = {}
    for name, adapter, base in (("run", run, ()), ("theirs", folder / "theirs", ("--base", folder / "model"))):
        merge(adapter, folder / f"{name} merged", base)
        hearth("export", adapter, "--out", folder / f"{name} exported", *base)
        found[name] = greedy(adapter, prompt, base)
        if found[name] != greedy(folder / f"{name} merged", prompt):
            raise AssertionError(f"{name} generates other tokens than the merged model")
        same = [(folder / f"{name} {how}" / "model.safetensors").read_bytes() for how in ("merged", "exported")]
        if same[0] != same[1]:
            raise AssertionError(f"{name}: export writes other weights than merge")
    if len(found["run"]) < 10 or greedy(folder / "model", prompt) in found.values():
        raise AssertionError(f"expected tokens that the base does not generate, got {found}")
    return f"{family}: {len(found['run'])} tokens from base and adapter are those of the merged model"


# The 16 values of NormalFloat4 (arXiv 2305.14314, appendix E), as bitsandbytes has them.
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334]
NF4 += [-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
NF4 += [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]


def nearest(values, table):
    return table[torch.bucketize(values, (table[:-1] + table[1:]) / 2)]


def dynamic_map():
    """bitsandbytes' create_dynamic_map(signed=True)."""
    values = [0.0, 1.0]
    for power in range(7):
        ends = torch.linspace(0.1, 1, 2**power + 1)
        means = 10.0 ** (power - 6) * (ends[:-1] + ends[1:]) / 2
        values += means.tolist() + (-means).tolist()
    return torch.tensor(sorted(values))


def by_blocks(values, size, table):
    """The absmax of each block, and the values as the table has them."""
    blocks = torch.nn.functional.pad(values.flatten(), (0, -values.numel() % size)).view(-1, size)
    absmax = blocks.abs().amax(1, keepdim=True)
    return absmax, nearest(blocks / absmax.clamp(min=1e-38), table)


def stored(weight, kind):
    """A matrix as it is read back from nf4 with double quantisation, or from int8 by rows."""
    if kind == "int8":
        absmax = weight.abs().amax(1, keepdim=True)
        return torch.round(weight * (127 / absmax)) * absmax / 127
    absmax, levels = by_blocks(weight, 64, torch.tensor(NF4))
    offset = absmax.mean()
    outer, inner = by_blocks(absmax - offset, 256, dynamic_map())
    absmax = (inner * outer).flatten()[: absmax.numel()].view(-1, 1) + offset
    return (levels * absmax).flatten()[: weight.numel()].view(weight.shape)


def check_quantised(kind, family, folder):
    model, adapted = make_adapter(family, folder)
    tokens = tokens_for(BATCH * STEPS, seed=7)
    arguments = [f"adapter.path={folder / 'theirs'}", f"adapter.quantize={kind}"]
    run = run_hearth(folder, model, tokens, STEPS, arguments)
    unquantised = losses_of(adapted, tokens)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if name.endswith("_proj.weight") or name.endswith("base_layer.weight"):
                weight.copy_(stored(weight, kind))
    losses = logged_losses(run)
    gap = relative_gap(losses, losses_of(adapted, tokens))
    if relative_gap(losses, unquantised) < 100 * gap:
        raise AssertionError("expected losses that differ from those of the unquantised model")
    return within(LOSS_TOLERANCE, gap, f"{family} in {kind}: {STEPS} losses within {gap:.1e} of PEFT in float64")


def checks(names):
    for name in names:
        yield f"{name} losses", lambda folder, name=name: check_losses(name, folder)
        yield f"{name} run folder", lambda folder, name=name: check_back(name, folder)
        yield f"{name} merge", lambda folder, name=name: check_merge(name, folder)
        yield f"{name} generation", lambda folder, name=name: check_generation(name, folder)
    for kind in ("nf4", "int8"):
        yield f"{names[0]} in {kind}", lambda folder, kind=kind: check_quantised(kind, names[0], folder)
    yield "run by its folder", lambda folder: check_auto("llama", folder)


if __name__ == "__main__":
    sys.exit(run_checks(checks(sys.argv[1:] or list(LORA))))
