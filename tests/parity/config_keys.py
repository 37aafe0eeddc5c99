"""Keys of config.json and tensors of a model folder against transformers: python tests/parity/config_keys.py [PART...].

Each case edits the folder of a small random model. Hearth either computes the loss that transformers computes, or
refuses the folder by a sentence that names the key; where this version of transformers fails, there is nothing to be
equal to. Run it under both environments (tools/python and tools/python 5). Needs ./hearth (tools/build).
"""

import json
import logging
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from config_edits import ABSENT
from family_cases import FAMILIES
from key_cases import KEYS
from language import EAGER, SMALL, sizes_of, train_on
from parity import logged_losses, run_checks, within
from rope_cases import ROPE
from tensor_cases import TENSORS

TOLERANCE = 1e-6
CONTEXT = 40
ROWS = 3

GRANITE = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.6,
    "attention_multiplier": 0.4,
    "logits_scaling": 2.5,
}
GEMMA3 = {
    "head_dim": 12,
    "sliding_window": 7,
    "query_pre_attn_scalar": 10,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}
QWEN3_MOE = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "mlp_only_layers": [1],
}
MODELS = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 12},
    "phi3": {},
    "phi3 in part": {"partial_rotary_factor": 0.5},
    "gemma2": {"head_dim": 12, "sliding_window": 7, "query_pre_attn_scalar": 10},
    "gemma2 with biases": {"head_dim": 12, "sliding_window": 7, "query_pre_attn_scalar": 10, "attention_bias": True},
    "olmo2": {},
    "olmo2 with biases": {"attention_bias": True},
    "olmo3": {"sliding_window": 7, "layer_types": GEMMA3["layer_types"], "rope_theta": 500000.0},
    "granite": GRANITE,
    "granite with biases": {**GRANITE, "attention_bias": True, "mlp_bias": True},
    "smollm3": {"no_rope_layers": [1, 0, 1], "tie_word_embeddings": True},
    "gemma3_text": GEMMA3,
    "gpt2": {},
    "gpt2 untied": {"tie_word_embeddings": False},
    "gpt2 of another width": {"n_inner": 40},
    "gemma3_text with biases": {**GEMMA3, "attention_bias": True},
    "qwen3_moe": QWEN3_MOE,
    "qwen3_moe without dense layers": {**QWEN3_MOE, "mlp_only_layers": []},
    "qwen3_moe by steps": {**QWEN3_MOE, "mlp_only_layers": [0], "decoder_sparse_step": 2},
    "qwen3_moe with biases": {**QWEN3_MOE, "attention_bias": True},
    "mixtral": {"num_local_experts": 4},
}


def save_model(name, folder):
    torch.manual_seed(1)
    config = AutoConfig.for_model(name.split()[0], **{**sizes_of(name.split()[0]), **MODELS[name]})
    model = AutoModelForCausalLM.from_config(config, **EAGER)
    with torch.no_grad():
        for weight in model.parameters():
            # Large enough for attention to depend on positions.
            weight += (0.3 if weight.ndim > 1 else 0.2) * torch.randn(weight.shape)
    model.save_pretrained(folder)


def edit_config(folder, edits):
    config = json.loads((folder / "config.json").read_text())
    for key, value in edits.items():
        config.pop(key, None)
        if value is not ABSENT:
            config[key] = value
    (folder / "config.json").write_text(json.dumps(config))


def edit_tensors(folder, edits):
    tensors = load_file(folder / "model.safetensors")
    if callable(edits):
        tensors, edits = edits(tensors), {}
    for name, make in edits.items():
        made = make(tensors)
        tensors.pop(name, None)
        if made is not None:
            tensors[name] = made
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def transformers_loss(folder, tokens):
    """None where transformers cannot open or run the folder."""
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, **EAGER, dtype=torch.float64)
        with torch.no_grad():
            logits = model(tokens[:-1].long().view(ROWS, CONTEXT), use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:].long()).item()
        return loss if loss == loss else None
    except Exception:  # noqa: BLE001 (whatever a library fails with)
        return None


def hearth_loss(folder, tokens):
    save_file({"tokens": tokens}, folder / "data.safetensors")
    train = {"steps": 1, "batch": ROWS}
    return logged_losses(train_on(folder, "data.safetensors", 1e-9, {"context": CONTEXT}, train))[0]


def compare(title, folder, named):
    """The folder's model in both programs; `named`: the word of a refusal, None where the two are equal."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, SMALL["vocab_size"], (ROWS * CONTEXT + 1,), generator=generator, dtype=torch.int32)
    # Version 4 takes no notice of rope_parameters, which version 5 writes.
    unread = title.startswith("version 5") and transformers.__version__ < "5"
    wanted = None if unread else transformers_loss(folder / "model", tokens)
    if named is None:
        found = hearth_loss(folder, tokens)
        if wanted is None:
            return f"{title}: runs, which transformers {transformers.__version__} does not"
        gap = abs(found - wanted) / wanted
        return within(TOLERANCE, gap, f"{title}: losses {found:.5f} and {wanted:.5f} within {gap:.1e}")
    try:
        found = hearth_loss(folder, tokens)
    except AssertionError as error:
        if "ended with 2" in str(error) and named in str(error):
            return f"{title}: refused: {str(error).split(': ', 1)[1]}"
        raise
    raise AssertionError(f"{title}: expected a refusal that names {named}, got the loss {found}; transformers {wanted}")


def check(title, case, folder):
    model, config, *tensors, named = case
    save_model(model, folder / "model")
    edit_config(folder / "model", config)
    for edits in tensors:
        edit_tensors(folder / "model", edits)
    return compare(title, folder, named)


def checks(parts):
    for part in parts:
        for title, case in PARTS[part].items():
            yield title, lambda folder, title=title, case=case: check(title, case, folder)


PARTS = {"rope": ROPE, "keys": KEYS, "families": FAMILIES, "tensors": TENSORS}
if __name__ == "__main__":
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    sys.exit(run_checks(checks(sys.argv[1:] or list(PARTS))))
