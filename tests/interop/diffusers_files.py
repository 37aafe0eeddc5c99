"""Files of denoisers, from and for others: python tests/interop/diffusers_files.py [CHECK...].

Small random models of diffusers: Hearth predicts the same to 1e-5 from their folders, from files as FLUX's authors name
tensors, and from files in 8 bits. A LoRA of diffusers is trained on here and read by diffusers again, in its own keys and,
through its converter, in those of kohya's scripts; a merged folder is loaded by diffusers. Files that lie are refused in one
sentence. Needs ./hearth and build/cpu/tests/denoiser_steps (HEARTH_TESTS=ON HEARTH_TARGETS=more_tests tools/build).
"""

import argparse
import copy
import json
import pathlib
import subprocess
import sys

import torch
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import load_file, save_file

# In place of this folder, whose gguf.py is not the package that diffusers asks for.
sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent / "parity")
from denoiser import CASES, hearth_results, make_batches, make_model  # noqa: E402
from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline  # noqa: E402
from diffusers.loaders.single_file_utils import convert_flux2_transformer_checkpoint_to_diffusers  # noqa: E402
from parity import ROOT, gradient_gap, hearth, run_checks, within  # noqa: E402

TOLERANCE = 1e-5
TARGETS = [
    "to_q",
    "to_k",
    "to_v",
    "to_out.0",
    "add_q_proj",
    "add_v_proj",
    "ff.net.0.proj",
    "ff_context.net.2",
    "norm_out.linear",
]
# diffusers' converter knows linear1 of a width of 3072 alone.
SINGLE = "single_transformer_blocks"


def off(found, expected, name="prediction"):
    return gradient_gap({name: found[name]}, {name: expected})[0]


def prediction_of(case, model, batches):
    with torch.no_grad():
        return case.predict(copy.deepcopy(model).double(), batches, 0, torch.float64)


def swapped(weight):
    return weight.roll(weight.shape[0] // 2, 0)


def original(state, flux2=False):
    """Under the names and in the rows of FLUX's authors."""
    state, made = dict(state), {}
    embeds = "time_guidance_embed" if flux2 else "time_text_embed"

    def take(name, parts, change=torch.clone):
        for ending in ("weight", "bias"):
            if f"{parts[0]}.{ending}" in state:
                made[f"{name}.{ending}"] = change(torch.cat([state.pop(f"{part}.{ending}") for part in parts]))

    def take_norm(name, part):
        made[f"{name}.scale"] = state.pop(f"{part}.weight")

    whole = {"img_in": "x_embedder", "txt_in": "context_embedder", "final_layer.linear": "proj_out"}
    for at, part in {"time": "timestep", "guidance": "guidance", "vector": "text"}.items():
        for layer, number in {"in_layer": 1, "out_layer": 2}.items():
            whole[f"{at}_in.{layer}"] = f"{embeds}.{part}_embedder.linear_{number}"
    for stream in ("double_stream_modulation_img", "double_stream_modulation_txt", "single_stream_modulation"):
        whole[f"{stream}.lin"] = f"{stream}.linear"
    for name, part in whole.items():
        take(name, [part])
    take("final_layer.adaLN_modulation.1", ["norm_out.linear"], swapped)
    mlp = ("linear_in", "linear_out") if flux2 else ("net.0.proj", "net.2")
    for number in range(8):
        here, there = f"transformer_blocks.{number}", f"double_blocks.{number}"
        if f"{here}.attn.to_q.weight" not in state:
            break
        take(f"{there}.img_attn.qkv", [f"{here}.attn.to_{one}" for one in "qkv"])
        take(f"{there}.txt_attn.qkv", [f"{here}.attn.add_{one}_proj" for one in "qkv"])
        for side, norm, out, ff, mod in (
            ("img", "norm_", "to_out.0", "ff", "norm1"),
            ("txt", "norm_added_", "to_add_out", "ff_context", "norm1_context"),
        ):
            take_norm(f"{there}.{side}_attn.norm.query_norm", f"{here}.attn.{norm}q")
            take_norm(f"{there}.{side}_attn.norm.key_norm", f"{here}.attn.{norm}k")
            take(f"{there}.{side}_attn.proj", [f"{here}.attn.{out}"])
            take(f"{there}.{side}_mlp.0", [f"{here}.{ff}.{mlp[0]}"])
            take(f"{there}.{side}_mlp.2", [f"{here}.{ff}.{mlp[1]}"])
            take(f"{there}.{side}_mod.lin", [f"{here}.{mod}.linear"])
    for number in range(8):
        here, there = f"{SINGLE}.{number}", f"single_blocks.{number}"
        if f"{here}.attn.norm_q.weight" not in state:
            break
        take_norm(f"{there}.norm.query_norm", f"{here}.attn.norm_q")
        take_norm(f"{there}.norm.key_norm", f"{here}.attn.norm_k")
        take(f"{there}.modulation.lin", [f"{here}.norm.linear"])
        if flux2:
            take(f"{there}.linear1", [f"{here}.attn.to_qkv_mlp_proj"])
            take(f"{there}.linear2", [f"{here}.attn.to_out"])
        else:
            take(f"{there}.linear1", [f"{here}.attn.to_{one}" for one in "qkv"] + [f"{here}.proj_mlp"])
            take(f"{there}.linear2", [f"{here}.proj_out"])
    if state:
        raise AssertionError(f"nothing became of {sorted(state)}")
    return made


def in_8_bits(state, scale_name):
    """Matrices as float8_e4m3fn, with the scale that uses its range or with none; and what they mean."""
    made, meant = {}, {}
    for name, value in state.items():
        if value.ndim < 2:
            made[name], meant[name] = value, value
            continue
        scale = value.abs().max() / 448 if scale_name else torch.tensor(1.0)
        made[name] = (value / scale).to(torch.float8_e4m3fn)
        meant[name] = made[name].float() * scale
        if scale_name:
            made[f"{name.removesuffix('.weight')}.{scale_name}"] = scale
    return made, meant


def load_model(case, state):
    model = case.make().eval()
    model.load_state_dict(state)
    return model


def put_folder(folder, case, model):
    """As diffusers saves a pipeline: the transformer in shards, and something beside it."""
    model.save_pretrained(folder / "transformer", max_shard_size="60KB")
    FlowMatchEulerDiscreteScheduler().save_pretrained(folder / "scheduler")
    (folder / "model_index.json").write_text(
        json.dumps({"_class_name": "FluxPipeline", "transformer": ["diffusers", case.cls.__name__]})
    )
    if not (folder / "transformer/diffusion_pytorch_model.safetensors.index.json").exists():
        raise AssertionError("expected several shards")


def predicted(folder, case, batches, *files):
    return hearth_results(folder, case, None, batches, files=files)


def check_folder(folder):
    gaps = []
    for name in ("flux", "flux2", "dit"):
        case = CASES[name]()
        model, batches = make_model(case), make_batches(case)
        put_folder(folder / name, case, model)
        found = predicted(folder / f"{name} run", case, batches, folder / name)
        gaps.append(off(found, prediction_of(case, model, batches)))
    return within(TOLERANCE, max(gaps), f"folders of diffusers: predictions within {max(gaps):.1e}")


def check_original(folder):
    gaps = []
    for name, prefix in (("flux with guidance", ""), ("flux", "model.diffusion_model."), ("flux2", "")):
        case = CASES[name]()
        model, batches = make_model(case), make_batches(case)
        state = original(model.state_dict(), flux2=name == "flux2")
        if name == "flux2":
            back = convert_flux2_transformer_checkpoint_to_diffusers(dict(state))
            for key, value in model.state_dict().items():
                torch.testing.assert_close(back[key], value, rtol=0, atol=0)
        file = folder / f"{name}.safetensors"
        extra = {"vae.decoder.conv_in.weight": torch.zeros(3)} if prefix else {}
        save_file({prefix + key: value.contiguous() for key, value in state.items()} | extra, file)
        found = predicted(folder / name, case, batches, file)
        gaps.append(off(found, prediction_of(case, model, batches)))
    return within(TOLERANCE, max(gaps), f"files of FLUX's authors: predictions within {max(gaps):.1e}")


def check_8_bits(folder):
    gaps, case = [], CASES["flux"]()
    model, batches = make_model(case), make_batches(case)
    for scale_name in ("scale_weight", "weight_scale", ""):
        made, meant = in_8_bits(original(model.state_dict()), scale_name)
        if scale_name == "scale_weight":
            made |= {"scaled_fp8": torch.zeros(0).to(torch.float8_e4m3fn), "img_in.scale_input": torch.ones(())}
        file = folder / f"{scale_name or 'plain'}.safetensors"
        save_file(made, file)
        plain = folder / "meant.safetensors"
        save_file(meant, plain)
        bits = predicted(folder / f"run {scale_name}", case, batches, file)
        exact = predicted(folder / f"exact {scale_name}", case, batches, plain)
        gaps.append(off(bits, exact["prediction"].double()))
    # And so does diffusers, whose names such files may have too.
    made, meant = in_8_bits(model.state_dict(), "weight_scale")
    save_file(made, folder / "own.safetensors")
    found = predicted(folder / "own", case, batches, folder / "own.safetensors")
    gaps.append(off(found, prediction_of(case, load_model(case, meant), batches)))
    return within(TOLERANCE, max(gaps), f"files in 8 bits, with scales and without: predictions within {max(gaps):.1e}")


def adapted(case, model, targets, rank=3, alpha=6):
    """The model with a LoRA whose matrices are no zeros, ranks and alphas not all the same."""
    torch.manual_seed(4)
    model = copy.deepcopy(model)
    patterns = {"rank_pattern": {"ff.net.0.proj": 2}, "alpha_pattern": {"ff.net.0.proj": 5}}
    model.add_adapter(LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, **patterns))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    return model


def save_lora(model, folder):
    layers = get_peft_model_state_dict(model)
    config = model.peft_config["default"].to_dict()
    FluxPipeline.save_lora_weights(folder, transformer_lora_layers=layers, transformer_lora_adapter_metadata=config)
    return folder / "pytorch_lora_weights.safetensors"


def with_lora(model, file):
    """The model with the LoRA of a file, as diffusers loads it."""
    model = copy.deepcopy(model)
    state, metadata = FluxPipeline.lora_state_dict(str(file.parent), weight_name=file.name, return_lora_metadata=True)
    FluxPipeline.load_lora_into_transformer(state, None, model, metadata=metadata)
    return model


def with_comfy_lora(model, file):
    """The model with the LoRA of a file, as ComfyUI loads it (comfy/lora.py, comfy/weight_adapter/lora.py): from its
    tensors alone. Without an alpha the product counts once, with one alpha / rank times."""
    model, state = copy.deepcopy(model), load_file(file)
    for name, weight in model.state_dict().items():
        module = f"transformer.{name.removesuffix('.weight')}"
        if not name.endswith(".weight") or f"{module}.lora_A.weight" not in state:
            continue
        up, down = state.pop(f"{module}.lora_B.weight"), state.pop(f"{module}.lora_A.weight")
        alpha = state.pop(f"{module}.alpha", None)
        weight += (1.0 if alpha is None else alpha.item() / down.shape[0]) * (up @ down)
    if state:
        raise AssertionError(f"ComfyUI would not load {sorted(state)}")
    return model


def check_lora(folder):
    """diffusers' LoRA, trained on in Hearth, loaded by diffusers; kohya's keys there and back."""
    case = CASES["flux"]()
    model, batches = make_model(case), make_batches(case)
    put_folder(folder / "base", case, model)
    given = adapted(
        case,
        model,
        r"(transformer_blocks.*\.(to_q|to_k|to_v|to_out\.0|add_q_proj|add_v_proj|ff\.net\.0\.proj|ff_context\.net\.2)|norm_out\.linear)",
    )
    file = save_lora(given, folder / "lora")
    found = predicted(folder / "run", case, batches, folder / "base", file)
    gaps = [off(found, prediction_of(case, given, batches))]
    trained = folder / "run/trained.safetensors"
    if off(found, found["trained"].double()) < 1e-3:
        raise AssertionError("expected training to move the prediction")
    gaps.append(off(found, prediction_of(case, with_lora(model, trained), batches), "trained"))
    gaps.append(off(found, prediction_of(case, with_comfy_lora(model, trained), batches), "trained"))

    hearth("export", trained, "--format", "kohya", "--out", folder / "kohya.safetensors")
    # Three of the single block's targets have a fused form that the converter knows for 3072 columns alone.
    again = predicted(folder / "again", case, batches, folder / "base", folder / "kohya.safetensors")
    gaps.append(off(again, found["trained"].double()))
    hearth("export", folder / "kohya.safetensors", "--format", "diffusers", "--out", folder / "back.safetensors")
    for reader in (with_lora, with_comfy_lora):
        gaps.append(off(found, prediction_of(case, reader(model, folder / "back.safetensors"), batches), "trained"))
    return within(TOLERANCE, max(gaps), f"LoRA: predictions within {max(gaps):.1e} of diffusers' and ComfyUI's, there and back")


def products(state):
    names = {key.removesuffix(".lora_A.weight") for key in state if key.endswith(".lora_A.weight")}
    return {name: state[f"{name}.lora_B.weight"].double() @ state[f"{name}.lora_A.weight"].double() for name in names}


def check_kohya(folder):
    """Matrices of FLUX.1's own width in kohya's keys, as diffusers' converter reads them."""
    torch.manual_seed(6)
    state, width, rank = {}, 3072, 2
    shapes = {f"{SINGLE}.0.attn.to_{one}": (width, width) for one in "qkv"} | {
        f"{SINGLE}.0.proj_mlp": (4 * width, width),
        "transformer_blocks.0.attn.to_q": (width, width),
        "transformer_blocks.0.attn.to_v": (width, width),
        "transformer_blocks.0.attn.add_k_proj": (width, width),
        "transformer_blocks.0.ff_context.net.2": (width, 4 * width),
        f"{SINGLE}.0.proj_out": (width, 5 * width),
    }
    for name, (rows, columns) in shapes.items():
        state[f"transformer.{name}.lora_A.weight"] = torch.randn(rank, columns)
        state[f"transformer.{name}.lora_B.weight"] = torch.randn(rows, rank)
    config = {"transformer.r": rank, "transformer.lora_alpha": 5, "transformer.target_modules": sorted(shapes)}
    save_file(state, folder / "lora.safetensors", metadata={"lora_adapter_metadata": json.dumps(config)})
    hearth("export", folder / "lora.safetensors", "--format", "kohya", "--out", folder / "kohya.safetensors")
    with safe_open(folder / "kohya.safetensors", "pt") as opened:
        metadata, names = opened.metadata(), set(opened.keys())
        alpha = opened.get_tensor("lora_unet_single_blocks_0_linear1.alpha")
    if metadata["ss_network_dim"] != "2" or metadata["ss_network_alpha"] != "5" or alpha.ndim != 0 or alpha != 20:
        raise AssertionError(f"another rank or alpha than 2 and 5: {metadata}, {alpha}")
    if not {"lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight", "lora_unet_double_blocks_0_txt_mlp_2.alpha"} <= names:
        raise AssertionError(f"other names: {sorted(names)}")
    converted, _ = FluxPipeline.lora_state_dict(str(folder), weight_name="kohya.safetensors", return_lora_metadata=True)
    exact = {name: 2.5 * product for name, product in products(state).items()}
    found = products(converted)
    for name in set(found) - set(exact):
        if found[name].abs().max() != 0:
            raise AssertionError(f"something became of '{name}', which had no adapter")
    worst = max((found[name] - product).abs().max().item() / product.abs().max().item() for name, product in exact.items())
    return within(TOLERANCE, worst, f"kohya's keys: diffusers' converter has the products within {worst:.1e}")


def check_merged(folder):
    case = CASES["flux"]()
    model, batches = make_model(case), make_batches(case)
    put_folder(folder / "base", case, model)
    given = adapted(case, model, TARGETS)
    file = save_lora(given, folder / "lora")
    said = hearth("merge", "--adapter", file, "--base", folder / "base", "--out", folder / "merged")
    if f"{len(load_file(file)) // 2} weights changed by" not in said:
        raise AssertionError(f"expected as many changed weights as the LoRA has, got '{said}'")
    merged = case.cls.from_pretrained(folder / "merged/transformer")
    gap = off({"prediction": prediction_of(case, merged, batches)}, prediction_of(case, given, batches))
    for part in ("scheduler/scheduler_config.json", "model_index.json", "transformer/config.json"):
        if (folder / "merged" / part).read_bytes() != (folder / "base" / part).read_bytes():
            raise AssertionError(f"expected the same {part}")
    made, meant = in_8_bits(model.state_dict(), "weight_scale")
    bits = folder / "bits"
    bits.mkdir()
    save_file(made, bits / "diffusion_pytorch_model.safetensors")
    (bits / "config.json").write_bytes((folder / "base/transformer/config.json").read_bytes())
    hearth("export", bits, "--out", folder / "wide", "--type", "f32")
    wide = case.cls.from_pretrained(folder / "wide")
    of_bits = prediction_of(case, load_model(case, meant), batches)
    gap = max(gap, off({"prediction": prediction_of(case, wide, batches)}, of_bits))
    return within(TOLERANCE, gap, f"merged and widened folders: diffusers predicts the same within {gap:.1e}")


def refused(wanted, *arguments):
    done = subprocess.run([str(ROOT / "hearth"), *map(str, arguments)], check=False, capture_output=True, text=True)
    if done.returncode == 0 or wanted not in done.stderr or done.stderr.count("\n") != 1:
        raise AssertionError(f"expected one sentence with '{wanted}', got {done.returncode}: {done.stderr}")


def check_refusals(folder):
    case = CASES["flux"]()
    model = make_model(case)
    put_folder(folder / "base", case, model)
    state = load_file(save_lora(adapted(case, model, TARGETS), folder / "lora"))
    key = "transformer.transformer_blocks.0.attn.to_q.lora_{}.weight"

    def merge(wanted, changed, base=("--base", folder / "base")):
        file = folder / "changed.safetensors"
        save_file({name: value.contiguous() for name, value in changed.items()}, file)
        refused(wanted, "merge", "--adapter", file, *base, "--out", folder / "out")

    merge(
        "expected 'transformer.transformer_blocks.0.attn.to_q.lora_A.weight' with shape [3, 32]",
        state | {key.format("A"): torch.zeros(3, 31)},
    )
    merge(
        "which has no 'single_transformer_blocks.7.attn.to_k.weight'",
        {name.replace("blocks.0", "blocks.7"): value for name, value in state.items()},
    )
    merge(
        "'transformer_blocks.0.attn.to_q' has lora_A but no lora_B",
        {name: value for name, value in state.items() if name != key.format("B")},
    )
    merge("expected lora_A [rank, in] and lora_B [out, rank]", state | {key.format("B"): torch.zeros(32, 5)})
    merge(
        "expected lora_A [rank, in] and lora_B [out, rank]",
        state | {key.format("A").replace("lora_A", "lora_magnitude_vector"): torch.zeros(32)},
    )
    merge("values that are infinite or NaN", state | {key.format("A"): torch.full((3, 32), float("nan"))})
    merge("try --base DIR", state, base=())
    kohya = {"lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight": torch.zeros(3, 32)}
    merge("expected lora_down [rank, in] and lora_up [out, rank]", kohya)
    up = "lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight"
    merge("for 3 modules, found 95 rows", kohya | {up: torch.zeros(95, 3)})
    merge(
        "'lora_te1_text_model' is not a module of a FLUX transformer",
        kohya | {up: torch.zeros(96, 3), "lora_te1_text_model.alpha": torch.ones(())},
    )
    file = folder / "cut.safetensors"
    file.write_bytes((folder / "changed.safetensors").read_bytes()[:-8])
    refused("cut.safetensors", "merge", "--adapter", file, "--base", folder / "base", "--out", folder / "out")

    broken = original(model.state_dict())
    broken["double_blocks.0.img_attn.qkv.weight"] = torch.zeros(95, 32)
    extra = original(model.state_dict()) | {"double_blocks.0.img_attn.gate.weight": torch.zeros(3)}
    scales = in_8_bits(original(model.state_dict()), "scale_weight")[0] | {"img_in.scale_weight": torch.ones(32)}
    for wanted, spoiled in (
        ("as the rows of 3 tensors", broken),
        ("'double_blocks.0.img_attn.gate.weight' is not a tensor of a FLUX transformer", extra),
        ("expected one scale per tensor", scales),
    ):
        spoilt = folder / wanted.replace(" ", "-").replace("'", "")
        spoilt.mkdir()
        save_file(spoiled, spoilt / "diffusion_pytorch_model.safetensors")
        (spoilt / "config.json").write_bytes((folder / "base/transformer/config.json").read_bytes())
        refused(wanted, "export", spoilt, "--out", folder / "out")
    return "files that lie: refused in one sentence"


CHECKS = {
    "folder": check_folder,
    "original": check_original,
    "8 bits": check_8_bits,
    "lora": check_lora,
    "kohya": check_kohya,
    "merged": check_merged,
    "refusals": check_refusals,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checks", nargs="*", help=f"among {', '.join(CHECKS)}; all by default")
    return run_checks((name, CHECKS[name]) for name in parser.parse_args().checks or CHECKS)


if __name__ == "__main__":
    sys.exit(main())
