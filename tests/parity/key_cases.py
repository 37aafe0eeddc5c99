"""Keys that families share, for config_keys.py: activations, windows, heads, quantized weights."""

from config_edits import ABSENT, SLIDING

# Title: family, edits of config.json, and what a refusal names (None: equal).
KEYS = {
    "plain llama": ("llama", {}, None),
    "hidden_activation of llama": ("llama", {"hidden_activation": "gelu"}, None),
    "hidden_act gelu": ("llama", {"hidden_act": "gelu"}, None),
    "is_causal false": ("llama", {"is_causal": False}, "is_causal"),
    **{
        f"quantized by {method}": ("llama", {"quantization_config": {"quant_method": method, "bits": 4}}, method)
        for method in ("gptq", "bitsandbytes", "fp8")
    },
    "layer_types of llama": ("llama", {"layer_types": SLIDING}, "layer_types"),
    "layer_types of mistral": ("mistral", {"layer_types": SLIDING, "sliding_window": 7, "rope_theta": 10000.0}, None),
    "sliding_window": ("mistral", {"sliding_window": 7}, None),
    "sliding_window 0": ("mistral", {"sliding_window": 0}, "sliding_window"),
    "sliding_window null": ("mistral", {"sliding_window": None}, None),
    "sliding_window absent": ("mistral", {"sliding_window": ABSENT}, None),
    "sliding_window of phi3": ("phi3", {"sliding_window": 7}, None),
    "qwen2 by max_window_layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1, "layer_types": ABSENT},
        None,
    ),
    "qwen2 by layer_types": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 7, "layer_types": SLIDING},
        None,
    ),
    "qwen2 with layer_types and no window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": None, "layer_types": SLIDING},
        "sliding_window",
    ),
    "qwen2 with layer_types and the window off": (
        "qwen2",
        {"use_sliding_window": False, "sliding_window": 7, "layer_types": SLIDING},
        "sliding_window",
    ),
    "qwen2 with unknown layer_types": (
        "qwen2",
        {"layer_types": ["full_attention", "chunked_attention", "full_attention"]},
        "chunked_attention",
    ),
    "qwen2 with too few layer_types": ("qwen2", {"layer_types": ["full_attention"]}, "layer_types"),
    "qwen3 without head_dim": ("qwen3", {"head_dim": ABSENT}, "q_proj"),
    "llama without rms_norm_eps": ("llama", {"rms_norm_eps": ABSENT}, None),
    "phi3 without rms_norm_eps": ("phi3", {"rms_norm_eps": ABSENT}, None),
    "llama without max_position_embeddings": (
        "llama",
        {"max_position_embeddings": ABSENT, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        None,
    ),
    "qwen2 without sliding_window and layer_types": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": ABSENT, "max_window_layers": ABSENT, "layer_types": ABSENT},
        None,
    ),
}
