"""Rope types and their keys, for config_keys.py."""

from config_edits import ABSENT, parameters, scaling, without

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
FACTORS = {"short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [1.0, 2.0, 4.0, 8.0]}
LONGROPE = {"rope_type": "longrope", **FACTORS}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}

# Title: family, edits of config.json, and what a refusal names (None: equal).
ROPE = {
    "linear": ("llama", scaling(rope_type="linear", factor=2.0), None),
    "linear by type": ("llama", scaling(type="linear", factor=2.0), None),
    "linear of mistral": ("mistral", scaling(rope_type="linear", factor=2.0), None),
    "linear by both names": ("llama", scaling(type="linear", rope_type="linear", factor=2.0), None),
    "names that differ": ("llama", scaling(type="linear", rope_type="default", factor=2.0), '"type"'),
    "no type": ("llama", scaling(factor=2.0), '"rope_type"'),
    "null": ("llama", {"rope_scaling": None}, None),
    "unknown type": ("llama", scaling(rope_type="stretchy", factor=2.0), "'stretchy'"),
    "dynamic": ("llama", scaling(rope_type="dynamic", factor=2.0), "'dynamic'"),
    "linear without factor": ("llama", scaling(rope_type="linear"), '"factor"'),
    "linear with attention_factor": ("llama", scaling(rope_type="linear", factor=2.0, attention_factor=2.0), None),
    "theta": ("llama", {"rope_theta": 500.0, "rope_parameters": ABSENT}, None),
    "theta in rope_scaling": ("llama", scaling(rope_type="linear", factor=2.0, rope_theta=77.0), "rope_theta"),
    "partial_rotary_factor of llama": ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "partial_rotary_factor of phi3": ("phi3 in part", {}, None),
    "partial_rotary_factor of phi3 in two places": (
        "phi3",
        {"partial_rotary_factor": 0.5, **parameters(rope_type="default", partial_rotary_factor=1.0)},
        "partial_rotary_factor",
    ),
    "llama3": ("llama", {"rope_scaling": LLAMA3}, None),
    "llama3 with attention_factor": ("llama", scaling(**LLAMA3, attention_factor=2.0), None),
    **{
        f"llama3 without {key}": ("llama", {"rope_scaling": without(LLAMA3, key)}, key)
        for key in LLAMA3
        if key != "rope_type"
    },
    "longrope with factor": ("llama", scaling(**LONGROPE, factor=2.0), None),
    "longrope without factor": ("llama", {"rope_scaling": LONGROPE}, '"factor"'),
    "longrope with the original length inside": (
        "llama",
        scaling(**LONGROPE, factor=4.0, original_max_position_embeddings=16),
        "original_max_position_embeddings",
    ),
    "longrope with the original length": (
        "llama",
        {"rope_scaling": LONGROPE, "original_max_position_embeddings": 16},
        None,
    ),
    "longrope with a factor unlike the ratio": (
        "llama",
        {"rope_scaling": {**LONGROPE, "factor": 3.0}, "original_max_position_embeddings": 16},
        '"factor"',
    ),
    "longrope with attention_factor": (
        "llama",
        {"rope_scaling": {**LONGROPE, "factor": 3.0, "attention_factor": 1.7}, "original_max_position_embeddings": 16},
        None,
    ),
    "longrope of phi3": (
        "phi3",
        {"rope_scaling": {"type": "longrope", **FACTORS}, "original_max_position_embeddings": 16},
        None,
    ),
    "longrope of phi3, original length by default": ("phi3", {"rope_scaling": {"type": "longrope", **FACTORS}}, None),
    "longrope of phi3, called su": (
        "phi3",
        {"rope_scaling": {"type": "su", **FACTORS}, "original_max_position_embeddings": 16},
        None,
    ),
    "longrope of phi3, called yarn": (
        "phi3",
        {"rope_scaling": {"type": "yarn", **FACTORS}, "original_max_position_embeddings": 16},
        None,
    ),
    "linear of phi3": ("phi3", scaling(type="linear", factor=2.0), "'linear'"),
    "yarn": ("llama", {"rope_scaling": YARN}, None),
    "yarn of qwen2": ("qwen2", {"rope_scaling": YARN}, None),
    "yarn without factor": ("llama", {"rope_scaling": without(YARN, "factor")}, '"factor"'),
    "yarn without the original length": (
        "llama",
        {"rope_scaling": without(YARN, "original_max_position_embeddings")},
        None,
    ),
    "yarn with another original length outside": (
        "llama",
        {"rope_scaling": YARN, "original_max_position_embeddings": 32},
        "original_max_position_embeddings",
    ),
    "yarn with attention_factor": ("llama", scaling(**YARN, attention_factor=1.4), None),
    "yarn with betas": ("llama", scaling(**YARN, beta_fast=3.0, beta_slow=0.5), None),
    "yarn with mscale": ("llama", scaling(**YARN, mscale=1.5, mscale_all_dim=0.5), None),
    "yarn with mscale alone": ("llama", scaling(**YARN, mscale=1.5), None),
    "yarn without truncate": ("llama", scaling(**YARN, truncate=False), None),
    "version 5: linear by type": ("llama", parameters(type="linear", factor=2.0), None),
    "version 5: yarn": ("llama", parameters(**YARN), None),
    "version 5: longrope": ("llama", parameters(**LONGROPE, factor=3.0, original_max_position_embeddings=16), None),
    "version 5: longrope without factor": (
        "llama",
        parameters(**LONGROPE, original_max_position_embeddings=16),
        None,
    ),
    "version 5: by layer type": ("qwen2", parameters(full_attention={"rope_type": "default"}), "full_attention"),
    "rope_scaling beside rope_parameters": (
        "llama",
        {**parameters(rope_type="default"), "rope_scaling": {"type": "linear", "factor": 2.0}},
        None,
    ),
}
