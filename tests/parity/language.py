"""Language models against transformers, from the same weights on the same tokens: python tests/parity/language.py.

Per family, a small random model of transformers: every gradient of the first step within 1e-4 of its float64 gradient
relative to the tensor's largest element, and the losses of 20 AdamW steps in float32 within 1e-4 of torch's float64.
Needs ./hearth (tools/build).
"""

import copy
import json
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from parity import RECIPE_OPTIMIZERS, descend, gradient_gap, hearth, hearth_train, logged_losses, make_optimizer
from parity import relative_gap, run_checks, within

STEPS = 20
LOSS_TOLERANCE = 1e-4
GRADIENT_TOLERANCE = 1e-4
CONTEXT = 24
BATCH = 3
VOCAB = 97
PROMPTS = (7, 70)
RATE = 1e-3
# The way through attention and experts that computes in float64; version 4 has no other through experts.
EAGER = {"attn_implementation": "eager"} | ({} if transformers.__version__ < "5" else {"experts_implementation": "eager"})

SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.1,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [1.0, 2.0, 4.0, 8.0]}
FAMILIES = {
    "llama": {"model_type": "llama"},
    "llama3.1": {"model_type": "llama", "rope_theta": 10000.0, "rope_scaling": LLAMA3_ROPE},
    "llama yarn": {
        "model_type": "llama",
        "rope_theta": 10000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    },
    "llama longrope": {
        "model_type": "llama",
        "rope_theta": 10000.0,
        "rope_scaling": {**LONGROPE, "rope_type": "longrope"},
        "original_max_position_embeddings": 16,
    },
    "llama3.2 tied": {"model_type": "llama", "tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "sliding_window": 7},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 12},
    "phi3": {"model_type": "phi3", "rope_scaling": LONGROPE, "original_max_position_embeddings": 16},
    "gemma2": {
        "model_type": "gemma2",
        "head_dim": 12,
        "sliding_window": 7,
        "query_pre_attn_scalar": 10,
        "hidden_activation": "gelu_pytorch_tanh",
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
    },
    "olmo2": {"model_type": "olmo2"},
    "olmo3": {
        "model_type": "olmo3",
        "sliding_window": 7,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    },
    "granite": {
        "model_type": "granite",
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.6,
        "attention_multiplier": 0.4,
        "logits_scaling": 2.5,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "smollm3": {"model_type": "smollm3", "no_rope_layer_interval": 2, "rope_theta": 20000.0},
    "smollm3 with windows": {
        "model_type": "smollm3",
        "no_rope_layers": [1, 0, 0],
        "use_sliding_window": True,
        "sliding_window": 7,
        "tie_word_embeddings": False,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "head_dim": 12,
        "sliding_window": 7,
        "query_pre_attn_scalar": 10,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        "final_logit_softcapping": 3.0,
    },
    "gpt2": {"model_type": "gpt2"},
    "gpt2 by layer": {
        "model_type": "gpt2",
        "n_inner": 56,
        "activation_function": "gelu",
        "scale_attn_by_inverse_layer_idx": True,
        "scale_attn_weights": False,
        "tie_word_embeddings": False,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 20,
        "norm_topk_prob": True,
        "head_dim": 12,
    },
    "qwen3_moe by plain shares": {
        "model_type": "qwen3_moe",
        "num_experts": 5,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 20,
        "decoder_sparse_step": 2,
        "attention_bias": True,
        "use_sliding_window": True,
        "sliding_window": 7,
    },
    "mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "mixtral with a window": {
        "model_type": "mixtral",
        "num_local_experts": 3,
        "num_experts_per_tok": 2,
        "sliding_window": 7,
    },
}
# The keys of a family that has its own names for sizes, and no dropout, which Hearth leaves out.
GPT2 = {
    "vocab_size": VOCAB,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    # As many as check_generation's context.
    "n_positions": 110,
    "initializer_range": 0.1,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def sizes_of(model_type):
    return GPT2 if model_type == "gpt2" else SMALL


def make_model(family):
    torch.manual_seed(1)
    options = {**sizes_of(FAMILIES[family]["model_type"]), **FAMILIES[family]}
    config = AutoConfig.for_model(options.pop("model_type"), **options)
    model = AutoModelForCausalLM.from_config(config, **EAGER)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:  # Norms and biases start as ones and zeros, which would hide mistakes.
                weight += 0.2 * torch.randn(weight.shape)
    return model


def tokens_for(num_rows, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB, (num_rows * CONTEXT + 1,), generator=generator, dtype=torch.int32)


def row(tokens, index):
    at = index * CONTEXT
    return tokens[at : at + CONTEXT].long(), tokens[at + 1 : at + CONTEXT + 1].long()


def loss_of(model, tokens, first):
    rows = [row(tokens, first + i) for i in range(BATCH)]
    logits = model(torch.stack([r[0] for r in rows]), use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.cat([r[1] for r in rows]))


def mean_loss(model, tokens, count):
    with torch.no_grad():
        return sum(loss_of(model, tokens, i * BATCH).item() for i in range(count)) / count


def train_on(folder, file, rate, data, train, arguments=()):
    """Trains folder/model with AdamW on folder/file, in the file's order; `data` and `train`: more keys of the recipe."""
    path = str(folder / file)
    recipe = {
        "seed": 1,
        "model": {"path": str(folder / "model")},
        "data": {"path": path, "val_path": path, "cache": str(folder / "cache"), "shuffle": False, **data},
        "optimizer": {**RECIPE_OPTIMIZERS["adamw"], "lr": rate},
        "schedule": {"name": "constant"},
        "train": {"log_every": 1, **train},
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    return hearth_train(folder / "run", [str(folder / "recipe.yaml"), *arguments])


def run_hearth(folder, model, tokens, steps, arguments=()):
    model.save_pretrained(folder / "model")
    save_file({"tokens": tokens}, folder / "data.safetensors")
    train = {"steps": steps, "batch": BATCH}
    return train_on(folder, "data.safetensors", RATE, {"context": CONTEXT}, train, arguments)


def as_in_files(tensors, family):
    """Version 5 holds all experts of a layer in two tensors, where files have each expert's own."""
    is_mixtral = family.startswith("mixtral")
    names = ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
    found = {}
    for name, values in tensors.items():
        name = name.replace(".mlp.", ".block_sparse_moe.") if is_mixtral else name
        module, _, part = name.rpartition(".")
        if part not in ("gate_up_proj", "down_proj"):
            found[name] = values
            continue
        parts = zip(names, values.chunk(2, dim=1)) if part == "gate_up_proj" else [(names[2], values)]
        for own, of_all in parts:
            found |= {f"{module}.{i}.{own}.weight": of_one for i, of_one in enumerate(of_all)}
    return found


def check_gradients(family, folder):
    model = make_model(family)
    tokens = tokens_for(BATCH, seed=5)
    dump = folder / "gradients.safetensors"
    run_hearth(folder, model, tokens, 1, ["--dump-gradients", str(dump)])
    exact = copy.deepcopy(model).double()
    loss_of(exact, tokens, 0).backward()
    gradients = as_in_files({name: weight.grad for name, weight in exact.named_parameters()}, family)
    gap, worst = gradient_gap(load_file(dump), gradients)
    return within(GRADIENT_TOLERANCE, gap, f"{family}: {len(gradients)} gradients within {gap:.1e} of float64 ({worst})")


def check_losses(family, folder):
    model = make_model(family)
    tokens = tokens_for(BATCH * STEPS, seed=7)
    losses = logged_losses(run_hearth(folder, model, tokens, STEPS))
    exact = copy.deepcopy(model).double()
    optimizer = make_optimizer("adamw", exact.parameters(), RATE)

    def loss_at(step):
        # An expert that no token sees has a gradient of zero; under version 4 it had none, and the optimizer left it out.
        return loss_of(exact, tokens, step * BATCH) + 0 * sum(weight.sum() for weight in exact.parameters())

    wanted = descend(optimizer, (loss_at(step) for step in range(STEPS)))
    gap = relative_gap(losses, wanted)
    return within(LOSS_TOLERANCE, gap, f"{family}: {STEPS} losses within {gap:.1e} of float64")


def check_back(family, folder):
    """The run folder is a model folder: transformers loads it and gets the loss that Hearth logged."""
    model = make_model(family)
    tokens = tokens_for(BATCH * 4, seed=9)
    run = run_hearth(folder, model, tokens, 4)
    last = json.loads((run / "trainer_log.jsonl").read_text().splitlines()[-1])
    found = AutoModelForCausalLM.from_pretrained(run, **EAGER, dtype=torch.float64)
    loss = mean_loss(found, tokens, 4)
    gap = abs(loss - last["eval_loss"]) / loss
    return within(1e-5, gap, f"{family}: transformers loads the run and agrees on its loss to {gap:.1e}")


def check_dtype(dtype, folder):
    """A run of a base in half precision holds its dtype, in config.json too, and opens as the same model."""
    model = make_model("llama").to(dtype)
    run = run_hearth(folder, model, tokens_for(BATCH * 4, seed=9), 4)
    saved = load_file(run / "model.safetensors")
    config = json.loads((run / "config.json").read_text())
    named = {f"torch.{config[key]}" for key in ("dtype", "torch_dtype")}
    if {weight.dtype for weight in saved.values()} != {dtype} or named != {str(dtype)}:
        raise AssertionError(f"expected {dtype} in file and config, got {config['dtype']} in config.json")
    found = AutoModelForCausalLM.from_pretrained(run, dtype="auto")
    for name, weight in found.state_dict().items():
        if weight.dtype != dtype or not torch.equal(weight, saved[name]):
            raise AssertionError(f"{name}: expected the file's values, got others")
    return f"a run of a base in {dtype} opens with the {len(saved)} tensors of its file"


def check_generation(family, length, folder):
    """The cache changes nothing: greedy tokens are those of transformers, which attends to everything again."""
    model = make_model(family)
    # Nothing ends an answer but its length.
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    wanted = tokens_for(3, seed=11)[:length].tolist()
    arguments = ["--prompt", " ".join(map(str, wanted)), "--max-tokens", 40, "--context", 110]
    found = [int(word) for word in hearth("generate", folder, "--tokens", *arguments).split()]
    exact = copy.deepcopy(model).double()
    for _ in found:
        with torch.no_grad():
            wanted.append(exact(torch.tensor([wanted]), use_cache=False).logits[0, -1].argmax().item())
    if len(found) != 40 or found != wanted[length:]:
        raise AssertionError(f"expected {wanted[length:]}, got {found}")
    return f"{family}: {len(found)} greedy tokens after {length} are those of transformers"


def checks(names):
    for name in names:
        yield f"{name} gradients", lambda folder, name=name: check_gradients(name, folder)
        yield f"{name} losses", lambda folder, name=name: check_losses(name, folder)
        # The longer prompt is longer than a window, and than the pieces that prompts are run in.
        for length in PROMPTS:
            yield (
                f"{name} generation after {length}",
                lambda folder, name=name, length=length: check_generation(name, length, folder),
            )
        yield f"{name} run folder", lambda folder, name=name: check_back(name, folder)
    for dtype in (torch.bfloat16, torch.float16):
        yield f"a run in {dtype}", lambda folder, dtype=dtype: check_dtype(dtype, folder)


if __name__ == "__main__":
    sys.exit(run_checks(checks(sys.argv[1:] or list(FAMILIES))))
