"""Adapters against PEFT, from the same weights on the same tokens: python tests/parity/adapters.py [FAMILY...].

Per family: 20 steps of LoRA in Hearth from an adapter that PEFT made, whose losses agree with PEFT's float64 within 1e-4
(PEFT's adapter loads in Hearth); the run folder loads in PEFT and gives the loss that Hearth logged; so does the folder
that `hearth merge` writes, whose logits are those of base and adapter, and which generates what they do. The same losses
with the base in nf4 and int8 against PEFT on the values that bitsandbytes' rules read back. Every field of PEFT's
LoraConfig at its default loads; other values are refused or give what PEFT gives. Needs ./hearth (tools/build).
"""

import copy
import dataclasses
import json
import subprocess
import sys

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from language import BATCH, EAGER, LOSS_TOLERANCE, RATE, STEPS
from language import loss_of, make_model, mean_loss, row, run_hearth, tokens_for
from parity import ROOT, descend, hearth, logged_losses, make_optimizer, relative_gap, run_checks, within

LORA = {
    "llama": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]},
    "phi3": {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": ["qkv_proj", "gate_up_proj", "o_proj"]},
    "qwen2": {"r": 2, "lora_alpha": 2, "target_modules": "all-linear"},
    "mistral": {"r": 4, "lora_alpha": 8, "target_modules": ["k_proj"], "modules_to_save": ["lm_head"]},
    "olmo2": {"r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "o_proj", "gate_proj"]},
    "olmo3": {"r": 2, "lora_alpha": 3, "target_modules": ["v_proj", "o_proj", "down_proj"]},
    "granite": {"r": 2, "lora_alpha": 40, "target_modules": "all-linear"},
    "smollm3": {"r": 4, "lora_alpha": 80, "target_modules": ["k_proj", "up_proj"]},
    "gemma3": {"r": 3, "lora_alpha": 5, "target_modules": "all-linear"},
    "gpt2": {"r": 3, "lora_alpha": 90, "target_modules": "all-linear", "fan_in_fan_out": True},
    "qwen3_moe": {"r": 3, "lora_alpha": 60, "target_modules": ["q_proj", "o_proj"]},
    "mixtral": {"r": 2, "lora_alpha": 40, "target_modules": ["k_proj", "v_proj"]},
}
# What adapter_config.json says of modules beside plain names; each is a family's model and a config.
PATTERNS = {
    "llama ranks and alphas": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj", "down_proj"],
        "rank_pattern": {r"layers\.1\..*_proj": 2, "q_proj": 3, "^model.layers.2.mlp.down_proj": 6},
        "alpha_pattern": {r"^model\.layers\.[02]\..*(q|v)_proj": 3.5, "down_proj": 16},
    },
    "llama ranks by root": {
        "r": 4,
        "lora_alpha": 8,
        "use_rslora": True,
        "target_modules": ["q_proj", "up_proj"],
        "rank_pattern": {"up_proj": 7},
        "alpha_pattern": {"mlp.up_proj": 5},
    },
    "llama expression": {"r": 3, "lora_alpha": 6, "target_modules": r".*\.[02]\.(self_attn\.[qv]_proj|mlp\.down_proj)"},
    "qwen2 layers": {
        "r": 3,
        "lora_alpha": 6,
        "target_modules": ["k_proj", "down_proj"],
        "layers_to_transform": [0, 2],
        "layers_pattern": "layers",
    },
    "mistral one layer": {"r": 3, "lora_alpha": 6, "target_modules": ["k_proj"], "layers_to_transform": 1},
    "llama excluded": {
        "r": 3,
        "lora_alpha": 6,
        "target_modules": "all-linear",
        "exclude_modules": ["o_proj", "layers.1.mlp.up_proj"],
        "modules_to_save": ["norm", "layers.0.self_attn.k_proj"],
    },
    "gpt2 attention": {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "attn.c_proj"]},
    "llama excluded by expression": {
        "r": 3,
        "lora_alpha": 6,
        "target_modules": ["gate_proj", "up_proj", "v_proj"],
        "exclude_modules": r"model\.layers\.\d\.mlp\.(gate|down)_proj",
    },
}
# Linear layers of experts, and of the router, which PEFT finds by name under version 4 of transformers alone.
EXPERTS = {
    "qwen3_moe experts": {"r": 3, "lora_alpha": 60, "target_modules": ["q_proj", "gate_proj", "up_proj", "down_proj"]},
    "mixtral experts": {"r": 2, "lora_alpha": 40, "target_modules": "all-linear"},
}
SAME = 1e-6


def make_adapter(family, folder, random_b=True):
    """The family's small model and PEFT's adapter on it, both saved; `family` may be a name of PATTERNS or EXPERTS."""
    model = make_model(family.split()[0])
    model.save_pretrained(folder / "model")
    torch.manual_seed(2)
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(task_type="CAUSAL_LM", **{**LORA, **PATTERNS, **EXPERTS}[family]))
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
    return AutoModelForCausalLM.from_pretrained(folder / "model", **EAGER, dtype=torch.float64)


def check_back(family, folder):
    """PEFT loads the run folder and gets the loss that Hearth logged; the names are those that PEFT writes."""
    _, tokens, run = train(family, folder, 4)
    theirs = load_file(folder / "theirs" / "adapter_model.safetensors")
    ours = load_file(run / "adapter_model.safetensors")
    same_tensors(ours, theirs)
    if (run / "model.safetensors").exists():
        raise AssertionError("expected no copy of the base model in the run folder")
    last = json.loads((run / "trainer_log.jsonl").read_text().splitlines()[-1])
    loss = mean_loss(PeftModel.from_pretrained(base_of(folder), run).double(), tokens, 4)
    gap = abs(loss - last["eval_loss"]) / loss
    return within(1e-5, gap, f"{family}: PEFT loads the run and agrees on its loss to {gap:.1e}")


def check_auto(family, folder):
    """transformers finds the base model by adapter_config.json."""
    _, tokens, run = train(family, folder, 1)
    found = AutoModelForCausalLM.from_pretrained(run, **EAGER, dtype=torch.float64)
    wanted = PeftModel.from_pretrained(base_of(folder), run).double()
    gap = abs(mean_loss(found, tokens, 1) - mean_loss(wanted, tokens, 1))
    return within(SAME, gap, f"{family}: transformers loads the run by its folder, same loss to {gap:.1e}")


def merge(run, out, arguments=()):
    hearth("merge", "--adapter", run, "--out", out, *arguments)
    return AutoModelForCausalLM.from_pretrained(out, **EAGER, dtype=torch.float64)


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


# A value of each field of LoraConfig that is not its default, and what the adapter of FIELD_CONFIG needs beside it. Both
# versions' fields are here; what only a newer PEFT knows is refused by its key all the same.
FIELD_CONFIG = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
CHANGED = {
    "task_type": "SEQ_CLS",
    "peft_type": "IA3",
    "auto_mapping": {"base_model_class": "LlamaForCausalLM", "parent_library": "transformers.models.llama.modeling_llama"},
    "peft_version": "0.1.0",
    "base_model_name_or_path": "elsewhere",
    "revision": "main",
    "inference_mode": True,
    "r": 8,
    "target_modules": ["q_proj"],
    "exclude_modules": ["layers.1.self_attn.q_proj"],
    "lora_alpha": 32,
    "lora_dropout": 0.5,
    "fan_in_fan_out": True,
    "bias": "all",
    "use_rslora": True,
    "modules_to_save": ["lm_head"],
    "init_lora_weights": "pissa",
    "layers_to_transform": [1],
    "layers_pattern": "layers",
    "rank_pattern": {"q_proj": 2},
    "alpha_pattern": {"q_proj": 2},
    "megatron_config": {"num_layers": 2},
    "megatron_core": "megatron.other",
    "trainable_token_indices": [3, 4],
    "loftq_config": {"loftq_bits": 4},
    "eva_config": {"rho": 3.0},
    "corda_config": {"corda_method": "kpm"},
    "lora_ga_config": {"direction": "random"},
    "use_dora": True,
    "velora_config": {},
    "alora_invocation_tokens": [5, 6],
    "use_qalora": True,
    "qalora_group_size": 8,
    "monteclora_config": {},
    "layer_replication": [[0, 2], [1, 3]],
    "lora_bias": True,
    "target_parameters": ["mlp.gate_proj.weight"],
    "use_bdlora": {"target_modules_bd_a": ["q_proj"], "nblocks": 2},
    "arrow_config": {"top_k": 2},
    "kasa_config": {},
    "ensure_weight_tying": True,
    "runtime_config": None,
    "mora_of_next_year": 1,
}
# Whose other value changes nothing that is computed from saved weights; all others are refused, or honored in PATTERNS.
HARMLESS = ["auto_mapping", "peft_version", "revision", "inference_mode", "lora_dropout", "megatron_core", "eva_config"]
HARMLESS += ["loftq_config", "corda_config", "lora_ga_config", "qalora_group_size", "ensure_weight_tying", "runtime_config"]
# Read here for --base alone, and a scale.
READ = ["base_model_name_or_path", "lora_alpha", "use_rslora", "alpha_pattern"]


def try_merge(adapter, folder, out):
    """The sentence of a refusal, or nothing."""
    command = [ROOT / "hearth", "merge", "--adapter", adapter, "--base", folder / "model", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2):
        raise AssertionError(f"expected a merge or a refusal, got {done.returncode}: {done.stderr}")
    return done.stderr.strip() if done.returncode else ""


def edited(folder, name, config, **keys):
    """The adapter with other keys in its config."""
    out = folder / name
    out.mkdir()
    (out / "adapter_model.safetensors").write_bytes((folder / "theirs" / "adapter_model.safetensors").read_bytes())
    (out / "adapter_config.json").write_text(json.dumps({**config, **keys}))
    return out


def check_fields(folder):
    """Every field at its default loads; another value is refused by its name, or the logits are PEFT's."""
    model = make_model("llama")
    model.save_pretrained(folder / "model")
    torch.manual_seed(2)
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(task_type="CAUSAL_LM", **FIELD_CONFIG))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight += 0.05 * torch.randn(weight.shape)
    adapted.save_pretrained(folder / "theirs")
    config = json.loads((folder / "theirs" / "adapter_config.json").read_text())
    fields = [field.name for field in dataclasses.fields(LoraConfig)]
    if unknown := sorted(set(fields) - set(CHANGED)):
        raise AssertionError(f"PEFT has fields that no value here changes: {unknown}")
    if sentence := try_merge(folder / "theirs", folder, folder / "plain"):
        raise AssertionError(f"expected every default to load, got {sentence}")
    text = row(tokens_for(BATCH, seed=7), 0)[0][None]
    refused = honored = 0
    for key, value in CHANGED.items():
        adapter = edited(folder, f"with_{key}", config, **{key: value})
        sentence = try_merge(adapter, folder, folder / f"merged_{key}")
        if (key in HARMLESS or key in READ) == bool(sentence):
            raise AssertionError(f"{key}={value}: expected {'no ' if sentence else 'a '}refusal, got '{sentence}'")
        if sentence:
            # The shapes of weights contradict a rank or a target.
            named = key in ("r", "target_modules", "exclude_modules", "rank_pattern") or f'"{key}"' in sentence
            if not (named or key in ("layers_to_transform", "modules_to_save")) or "adapter" not in sentence:
                raise AssertionError(f"{key}={value}: expected a sentence that names it, got '{sentence}'")
            refused += 1
            continue
        if key not in fields:
            continue
        merged = AutoModelForCausalLM.from_pretrained(folder / f"merged_{key}", dtype=torch.float64)
        wanted = PeftModel.from_pretrained(base_of(folder), adapter).double()
        with torch.no_grad():
            gap = (merged(text).logits - wanted(text).logits).abs().max().item()
        within(1e-5, gap, f"{key}={value}: merged logits within {gap:.1e} of PEFT's")
        honored += 1
    return f"{len(fields)} fields of LoraConfig load at their defaults; of other values {refused} are refused, {honored} as in PEFT"


def check_own_norms(folder):
    """Modules that a recipe saves whole by a short name are those that PEFT finds by the written ones."""
    model = make_model("qwen3")
    tokens = tokens_for(BATCH * 4, seed=7)
    arguments = ["adapter=lora", "adapter.targets=[q_proj]", "adapter.rank=3"]
    arguments.append("adapter.modules_to_save=[norm,layers.1.input_layernorm,q_norm,lm_head,layers.2.mlp.up_proj]")
    run = run_hearth(folder, model, tokens, 4, arguments)
    saved = json.loads((run / "adapter_config.json").read_text())["modules_to_save"]
    last = json.loads((run / "trainer_log.jsonl").read_text().splitlines()[-1])
    adapted = PeftModel.from_pretrained(base_of(folder), run).double()
    loss = mean_loss(adapted, tokens, 4)
    gap = abs(loss - last["eval_loss"]) / loss
    adapted.save_pretrained(folder / "again")
    same_tensors(load_file(run / "adapter_model.safetensors"), load_file(folder / "again" / "adapter_model.safetensors"))
    arguments = [f"adapter.path={folder / 'again'}", "optimizer.lr=0"]
    again = run_hearth(folder / "again", model, tokens, 1, arguments)
    first = json.loads((again / "trainer_log.jsonl").read_text().splitlines()[-1])
    gap = max(gap, abs(loss - first["eval_loss"]) / loss)
    return within(1e-5, gap, f"norms saved whole ({', '.join(saved)}): PEFT and Hearth read them, losses within {gap:.1e}")


def check_experts(targets, family, folder):
    """A recipe's adapter on experts loads in PEFT under both versions, and gives the loss that Hearth logged. (Under
    version 5, PEFT leaves out the layers without experts, so that every layer here has them.)"""
    model = make_model(family)
    tokens = tokens_for(BATCH * 4, seed=7)
    arguments = ["adapter=lora", f"adapter.targets=[{targets}]", "adapter.rank=3", "adapter.alpha=60"]
    run = run_hearth(folder, model, tokens, 4, arguments)
    last = json.loads((run / "trainer_log.jsonl").read_text().splitlines()[-1])
    loss = mean_loss(PeftModel.from_pretrained(base_of(folder), run).double(), tokens, 4)
    gap = abs(loss - last["eval_loss"]) / loss
    plain = mean_loss(base_of(folder), tokens, 4)
    if abs(loss - plain) / loss < 100 * gap:
        raise AssertionError(f"expected another loss than the base's {plain}, got {loss}")
    return within(1e-5, gap, f"{family}: PEFT loads an adapter on experts and agrees on its loss to {gap:.1e}")


def check_stacked_experts(family, folder):
    """Under version 5, PEFT adapts all experts of a layer in one tensor."""
    make_adapter(family, folder)
    sentence = try_merge(folder / "theirs", folder, folder / "merged")
    if '"target_parameters"' not in sentence:
        raise AssertionError(f"expected a refusal that names target_parameters, got '{sentence}'")
    return f"{family}: refused by target_parameters"


def same_tensors(found, wanted):
    if {k: v.shape for k, v in found.items()} != {k: v.shape for k, v in wanted.items()}:
        raise AssertionError(f"expected the tensors {sorted(wanted)}, got {sorted(found)}")


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
    """A matrix as it is read back from nf4 with double quantization, or from int8 by rows."""
    if kind == "int8":
        absmax = weight.abs().amax(1, keepdim=True)
        return torch.round(weight * (127 / absmax)) * absmax / 127
    absmax, levels = by_blocks(weight, 64, torch.tensor(NF4))
    offset = absmax.mean()
    outer, inner = by_blocks(absmax - offset, 256, dynamic_map())
    absmax = (inner * outer).flatten()[: absmax.numel()].view(-1, 1) + offset
    return (levels * absmax).flatten()[: weight.numel()].view(weight.shape)


def check_quantized(kind, family, folder):
    model, adapted = make_adapter(family, folder)
    tokens = tokens_for(BATCH * STEPS, seed=7)
    arguments = [f"adapter.path={folder / 'theirs'}", f"adapter.quantize={kind}"]
    run = run_hearth(folder, model, tokens, STEPS, arguments)
    unquantized = losses_of(adapted, tokens)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if name.endswith("_proj.weight") or name.endswith("base_layer.weight"):
                weight.copy_(stored(weight, kind))
    losses = logged_losses(run)
    gap = relative_gap(losses, losses_of(adapted, tokens))
    if relative_gap(losses, unquantized) < 100 * gap:
        raise AssertionError("expected losses that differ from those of the unquantized model")
    return within(LOSS_TOLERANCE, gap, f"{family} in {kind}: {STEPS} losses within {gap:.1e} of PEFT in float64")


def checks(names):
    for name in names:
        yield f"{name} losses", lambda folder, name=name: check_losses(name, folder)
        yield f"{name} run folder", lambda folder, name=name: check_back(name, folder)
        yield f"{name} merge", lambda folder, name=name: check_merge(name, folder)
        yield f"{name} generation", lambda folder, name=name: check_generation(name, folder)
    for kind in ("nf4", "int8"):
        yield f"{names[0]} in {kind}", lambda folder, kind=kind: check_quantized(kind, names[0], folder)
    for name in [*names, *PATTERNS]:
        yield f"{name} by its folder", lambda folder, name=name: check_auto(name, folder)
    for name in PATTERNS:
        yield f"{name} losses", lambda folder, name=name: check_losses(name, folder)
        yield f"{name} run folder", lambda folder, name=name: check_back(name, folder)
        yield f"{name} merge", lambda folder, name=name: check_merge(name, folder)
    for name in EXPERTS:
        if transformers.__version__ < "5":
            yield f"{name} losses", lambda folder, name=name: check_losses(name, folder)
            yield f"{name} run folder", lambda folder, name=name: check_back(name, folder)
            yield f"{name} merge", lambda folder, name=name: check_merge(name, folder)
        else:
            yield f"{name} in one tensor", lambda folder, name=name: check_stacked_experts(name, folder)
    for name, targets in (("qwen3_moe", "gate_proj,up_proj,down_proj"), ("mixtral", "q_proj,w1,w2,w3")):
        yield f"{name} experts by a recipe", lambda folder, case=(targets, name): check_experts(*case, folder)
    yield "norms saved whole", check_own_norms
    yield "fields of LoraConfig", check_fields


if __name__ == "__main__":
    sys.exit(run_checks(checks(sys.argv[1:] or list(LORA))))
