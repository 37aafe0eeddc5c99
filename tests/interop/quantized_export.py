"""Exported compressed-tensors folders as their package reads them: python tests/interop/quantized_export.py.

A small Llama is exported in each scheme. The package's compressors must decompress each layer to the values of the scheme's
formula, Hearth must read the same values back, and transformers must load the folder and compute the logits of a model
with these weights. Needs ./hearth (tools/build).
"""

import json
import pathlib
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "parity"))
from language import EAGER, SMALL  # noqa: E402
from parity import hearth, run_checks  # noqa: E402

# down_proj has 320 inputs, which are not a multiple of 128.
SIZES = {**SMALL, "vocab_size": 300, "hidden_size": 256, "intermediate_size": 320, "num_hidden_layers": 2}
SCHEMES = {  # format, group, largest code plus one half or largest code
    "w4a16": ("pack-quantized", 128, 7.5),
    "w4a8": ("int-quantized", 32, 7.5),
    "w8a8": ("int-quantized", None, 127.5),
    "fp8": ("float-quantized", None, 448),
}


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: expected {wanted}, got {got}")


def rounded(weight, group, largest):
    """Returns the values of a scheme in f32."""
    groups = weight.reshape(weight.shape[0], -1, group or weight.shape[1])
    scale = (groups.abs().amax(2, keepdim=True) / largest).bfloat16().float()
    if largest == 448:
        codes = (groups / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    else:
        codes = (groups * (1 / scale)).round().clamp(-largest - 0.5, largest - 0.5)
    return (codes * scale).reshape(weight.shape)


def layer(state, name):
    prefix = name.removesuffix("weight")
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def check_scheme(name, folder):
    form, group, largest = SCHEMES[name]
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **SIZES), **EAGER)
    model.save_pretrained(folder / "model")
    hearth("export", folder / "model", "--format", "compressed-tensors", "--scheme", name, "--out", folder / "out")
    state = load_file(folder / "out" / "model.safetensors")
    settings = json.loads((folder / "out" / "config.json").read_text())["quantization_config"]
    config = QuantizationConfig.model_validate(settings)
    expect("format", config.format, form)
    scheme = config.config_groups["group_0"]
    inputs = scheme.input_activations
    expect("inputs", inputs and (inputs.type, inputs.symmetric, inputs.dynamic), {
        "w4a16": None,
        "w4a8": ("int", False, True),
        "w8a8": ("int", True, True),
        "fp8": ("float", True, True),
    }[name])
    hearth("export", folder / "out", "--type", "f32", "--out", folder / "back")
    back = load_file(folder / "back" / "model.safetensors")
    kept, num_quantized, values = [], 0, {}
    for key, weight in model.state_dict().items():
        fits = group is None or weight.shape[-1] % group == 0
        if not key.endswith("proj.weight") or not fits:
            expect(f"{key} is unchanged", torch.equal(state[key], weight), True)
            if key.endswith("proj.weight"):
                kept.append(key.removesuffix(".weight"))
            continue
        values[key] = rounded(weight, group, largest)
        compressor = BaseCompressor.get_value_from_registry(form)
        found = compressor.decompress(layer(state, key), scheme)["weight"]
        expect(f"{key} by the package", torch.equal(found, values[key].to(found.dtype)), True)
        expect(f"{key} read by Hearth", torch.equal(back[key], values[key]), True)
        num_quantized += 1
    expect("ignored layers", sorted(config.ignore), sorted(["lm_head", *kept]))
    model.load_state_dict(values, strict=False)
    return f"{name}: {num_quantized} layers are decompressed exactly, {len(kept)} are kept; {check_logits(model, folder, name)}"


def check_logits(model, folder, name):
    loaded = AutoModelForCausalLM.from_pretrained(folder / "out", dtype=torch.float32, **EAGER)
    tokens = torch.arange(1, 25)[None]
    with torch.no_grad():
        wanted, found = model(tokens).logits, loaded(tokens).logits
    gap = ((found - wanted).norm() / wanted.norm()).item()
    # Only w4a16 does not round the inputs.
    limit = 1e-5 if name == "w4a16" else 0.2
    if not gap < limit:
        raise AssertionError(f"{name}: the logits of transformers differ by {gap:.1e}")
    return f"logits in transformers within {gap:.1e}"


if __name__ == "__main__":
    sys.exit(run_checks((name, lambda folder, name=name: check_scheme(name, folder)) for name in sys.argv[1:] or SCHEMES))
