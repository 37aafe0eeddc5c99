"""Tensors of a model folder that are too many, missing or named otherwise, for config_keys.py."""

import torch


def inner_names(tensors):
    """As the first published files have them."""
    return {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}


# Title: family, edits of config.json, edits of tensors, and what a refusal names (None: equal).
TENSORS = {
    "rotary tables": ("llama", {}, {"model.layers.0.self_attn.rotary_emb.inv_freq": lambda _: torch.ones(4)}, None),
    "a tensor of no model": ("llama", {}, {"model.layers.0.extra.weight": lambda _: torch.ones(4)}, "extra"),
    "a tied head that is there too": (
        "llama",
        {"tie_word_embeddings": True},
        {"lm_head.weight": lambda found: found["model.embed_tokens.weight"].clone()},
        None,
    ),
    "a tied head of other values": ("llama", {"tie_word_embeddings": True}, {}, "lm_head.weight"),
    "names without the outermost one": ("gpt2", {}, inner_names, None),
    "masks that older files hold": (
        "gpt2",
        {},
        {
            "transformer.h.0.attn.bias": lambda _: torch.ones(1, 1, 110, 110).tril(),
            "transformer.h.0.attn.masked_bias": lambda _: torch.tensor(-1e4),
        },
        None,
    ),
    "a tied head of gpt2 that is there too": (
        "gpt2",
        {},
        {"lm_head.weight": lambda found: found["transformer.wte.weight"].clone()},
        None,
    ),
    "a tied head of gpt2 of other values": ("gpt2", {}, {"lm_head.weight": lambda _: torch.ones(97, 32)}, "lm_head"),
    "a head that is missing": ("llama", {}, {"lm_head.weight": lambda _: None}, "lm_head.weight"),
}
