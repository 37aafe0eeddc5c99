"""Edits of config.json that the cases of config_keys.py are made of."""

ABSENT = object()
SLIDING = ["full_attention", "sliding_attention", "full_attention"]


def without(keys, *left_out):
    return {key: value for key, value in keys.items() if key not in left_out}


def scaling(**keys):
    return {"rope_scaling": keys}


def parameters(**keys):
    """The form of version 5."""
    return {"rope_scaling": ABSENT, "rope_theta": ABSENT, "rope_parameters": {"rope_theta": 10000.0, **keys}}


def by_layer(**keys):
    """That form for a family whose layers differ."""
    return {"rope_scaling": ABSENT, "rope_theta": ABSENT, "rope_local_base_freq": ABSENT, "rope_parameters": keys}
