"""GGUF files as gguf-py reads them, and exported folders as transformers does: python tests/interop/gguf.py [FAMILY...].

Per family, a small random model of transformers, exported in every type: the names are those of gguf-py's own map, each
tensor holds what transformers' does (interleaved where llama.cpp wants it), quantized as gguf-py quantizes, and the
metadata says what config.json and the tokenizer do. Needs ./hearth (tools/build).
"""

import pathlib
import sys

# This file has the package's name, and Python would look beside it first.
sys.path.pop(0)

import gguf  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, logging  # noqa: E402
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "parity"))
from family_tokenizers import make_tokenizer  # noqa: E402
from language import FAMILIES, SMALL, make_model  # noqa: E402
from parity import hearth, run_checks  # noqa: E402

TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
    "q5_0": gguf.GGMLQuantizationType.Q5_0,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7, "q5_0": 8, "q4_K": 14, "q5_K": 16, "q6_K": 18, "bf16": 32}
BLOCKS = (TYPES["q4_0"], TYPES["q5_0"], TYPES["q8_0"])
# A K-quant, the type of rows that are not a multiple of 256, and gguf-py's quantizer of about as many bits.
K_QUANTS = {"q4_K": ("Q5_0", "Q4_0"), "q5_K": ("Q5_1", "Q5_0"), "q6_K": ("Q8_0", "Q5_0")}
# Stored as q8_0 where other matrices are q4_0 or q5_0.
TABLES = ("token_embd.weight", "output.weight")
# Room for a byte fallback.
VOCAB = SMALL["vocab_size"] = 300
# What llama.cpp takes for granted, so that export refuses anything else.
FAMILIES["gemma2"] = {**FAMILIES["gemma2"], "query_pre_attn_scalar": FAMILIES["gemma2"]["head_dim"]}
# Rope types that export refuses by name: no llama.cpp was at hand to hold them against.
REFUSED = {"llama yarn": "yarn", "llama longrope": "longrope"}
# Families that export refuses.
EXPORTED = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2")
REFUSED |= {name: f"'{keys['model_type']}'" for name, keys in FAMILIES.items() if keys["model_type"] not in EXPORTED}
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: expected {wanted}, got {got}")


def make_folder(family, folder):
    model = make_model(family)
    model.save_pretrained(folder / "model")
    tokenizer, *names = make_tokenizer(family)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder / "model")
    return model, tokenizer, *names


def read(path):
    reader = gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    return fields, {tensor.name: tensor for tensor in reader.tensors}


def interleaved(weight, heads):
    """Rotated halves to pairs, as llama.cpp's converter does it."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def arch_of(model):
    return {"mistral": "llama"}.get(model.config.model_type, model.config.model_type)


def wanted_tensors(model):
    """Every tensor under the name of gguf-py's map, in f32 and in llama.cpp's layout."""
    arch = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[arch_of(model)]
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    wanted = {}
    for key, weight in model.state_dict().items():
        if key == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        value = weight.float().numpy()
        if arch_of(model) == "llama" and ("q_proj" in key or "k_proj" in key):
            config = model.config
            value = interleaved(value, config.num_attention_heads if "q_proj" in key else config.num_key_value_heads)
        if arch_of(model) == "gemma2" and key.endswith("norm.weight"):
            value = value + 1
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise AssertionError(f"gguf-py has no name for {key}")
        wanted[name] = value
    return wanted | rope_tables(model.config)


def rope_tables(config):
    """What frequencies are divided by."""
    scaling = getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type") == "llama3":
        plain, _ = ROPE_INIT_FUNCTIONS["default"](config, "cpu")
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
        return {"rope_freqs.weight": (plain.double() / scaled.double()).float().numpy()}
    if scaling.get("type", scaling.get("rope_type")) == "longrope":
        as_table = lambda key: numpy.array(scaling[key], numpy.float32)  # noqa: E731
        return {
            "rope_factors_long.weight": as_table("long_factor"),
            "rope_factors_short.weight": as_table("short_factor"),
        }
    return {}


def check_tensor(tensor, value, kind):
    if value.ndim < 2:
        kind = gguf.GGMLQuantizationType.F32
    elif kind in BLOCKS and value.shape[-1] % 32 != 0:
        kind = gguf.GGMLQuantizationType.F16
    elif kind in (TYPES["q4_0"], TYPES["q5_0"]) and tensor.name in TABLES:
        kind = TYPES["q8_0"]
    expect(f"type of {tensor.name}", tensor.tensor_type, kind)
    expect(f"shape of {tensor.name}", tensor.shape.tolist(), list(reversed(value.shape)))
    expect(f"alignment of {tensor.name}", tensor.data_offset % 32, 0)
    wanted = gguf.quantize(value, kind)
    if tensor.name == "rope_freqs.weight":  # transformers computes it in f32.
        numpy.testing.assert_allclose(tensor.data, wanted, rtol=3e-6)
    elif not numpy.array_equal(numpy.asarray(tensor.data).view(numpy.uint8), wanted.view(numpy.uint8)):
        raise AssertionError(f"{tensor.name} in {kind.name} differs from gguf-py's")


def check_tensors(family, name, folder):
    model, *_ = make_folder(family, folder)
    hearth("export", folder / "model", "--format", "gguf", "--type", name, "--out", folder / "m.gguf")
    fields, tensors = read(folder / "m.gguf")
    expect("file type", fields["general.file_type"], FILE_TYPES[name])
    wanted = wanted_tensors(model)
    expect("tensors", sorted(tensors), sorted(wanted))
    for key, value in wanted.items():
        check_tensor(tensors[key], value, TYPES[name])
    return f"{family} in {name}: {len(wanted)} tensors are gguf-py's, bit for bit"


def make_wide_folder(folder):
    """A model whose rows have 256 elements, except those of down_proj, which have 320."""
    sizes = {**SMALL, "hidden_size": 256, "intermediate_size": 320, "num_hidden_layers": 1}
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **sizes))
    model.save_pretrained(folder / "model")
    tokenizer, *_ = make_tokenizer("llama")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder / "model")
    return model


def error(found, wanted):
    return numpy.sqrt(numpy.square(found - wanted).mean() / numpy.square(wanted).mean())


def check_k_quant(name, folder):
    """gguf-py has no quantizers of K-quants: the errors are held against those of its types of about as many bits."""
    fallback, other = (gguf.GGMLQuantizationType[kind] for kind in K_QUANTS[name])
    wanted = wanted_tensors(make_wide_folder(folder))
    hearth("export", folder / "model", "--type", name, "--out", folder / "m.gguf")
    fields, tensors = read(folder / "m.gguf")
    expect("file type", fields["general.file_type"], FILE_TYPES[name])
    hearth("export", folder / "m.gguf", "--type", "f32", "--out", folder / "back")
    back = AutoModelForCausalLM.from_pretrained(folder / "back")
    read_back, ratios = wanted_tensors(back), []
    for key, value in wanted.items():
        kind = gguf.GGMLQuantizationType["Q6_K" if key in TABLES else name.upper()]
        kind = fallback if value.shape[-1] % 256 else kind
        if value.ndim < 2:
            continue
        expect(f"type of {key}", tensors[key].tensor_type, kind)
        values = gguf.dequantize(tensors[key].data, kind)
        if not numpy.array_equal(values, read_back[key]):
            raise AssertionError(f"{key}: Hearth reads other values than gguf-py")
        if kind == fallback:
            expect(f"bytes of {key}", tensors[key].data.tobytes(), gguf.quantize(value, kind).tobytes())
        else:
            ratios.append(error(values, value) / error(gguf.dequantize(gguf.quantize(value, other), other), value))
    if max(ratios) >= 1:
        raise AssertionError(f"{name}: {max(ratios):.2f} times the error of {other.name}")
    return f"{name}: gguf-py dequantizes to Hearth's values; {max(ratios):.2f} times the error of {other.name}"


def wanted_fields(model):
    config, arch = model.config, arch_of(model)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    fields = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.dimension_count": head,
        "rope.freq_base": config.rope_theta,
    }
    if arch in ("phi3", "gemma2") or config.model_type == "mistral":
        fields["attention.sliding_window"] = config.sliding_window or 0
    if arch == "gemma2":
        fields["attn_logit_softcapping"] = config.attn_logit_softcapping
        fields["final_logit_softcapping"] = config.final_logit_softcapping
    if arch == "phi3":
        fields["rope.scaling.original_context_length"] = config.original_max_position_embeddings
        _, factor = ROPE_INIT_FUNCTIONS["longrope"](config, "cpu")
        fields["rope.scaling.attn_factor"] = factor
    return {f"{arch}.{key}": value for key, value in fields.items()}


def check_fields(family, folder):
    model, tokenizer, kind, pre = make_folder(family, folder)
    hearth("export", folder / "model", "--format", "gguf", "--out", folder / "m.gguf")
    fields, _ = read(folder / "m.gguf")
    arch = arch_of(model)
    for key, value in wanted_fields(model).items():
        if not numpy.isclose(fields.get(key, numpy.nan), value, rtol=1e-6, atol=0):
            raise AssertionError(f"{key}: expected {value}, got {fields.get(key)}")
    expect("keys", sorted(k for k in fields if k.startswith(f"{arch}.")), sorted(wanted_fields(model)))
    expect("architecture", fields["general.architecture"], arch)
    expect("quantization version", fields["general.quantization_version"], gguf.GGML_QUANT_VERSION)
    expect("template", fields["tokenizer.chat_template"], TEMPLATE)
    check_tokenizer(fields, tokenizer, kind, pre)
    return f"{family}: metadata is that of config.json and of the tokenizer ({kind}, {pre})"


def check_tokenizer(fields, tokenizer, kind, pre):
    get = lambda key: fields[f"tokenizer.ggml.{key}"]  # noqa: E731
    expect("model and split", (get("model"), get("pre")), (kind, pre))
    tokens = [tokenizer.id_to_token(i) or f"[PAD{i}]" for i in range(VOCAB)]
    expect("tokens", get("tokens"), tokens)
    special = {"<s>": 3, "</s>": 3, "<think>": 4, "<unk>": 2}
    kinds = [special.get(t, 5 if t.startswith("[PAD") else 6 if t.startswith("<0x") else 1) for t in tokens]
    expect("kinds", get("token_type"), kinds)
    expect("bos and eos", (tokens[get("bos_token_id")], tokens[get("eos_token_id")]), ("<s>", "</s>"))
    expect("bos and eos are added", (get("add_bos_token"), get("add_eos_token")), (True, False))
    if kind == "gpt2":
        letters = tokens[:2]
        expect("merges", get("merges"), [" ".join(letters)])
    else:
        scores = dict(zip(tokens, get("scores")))
        best_first = sorted(["aba", "\u2581ab", "ab", "\u2581a"], key=lambda token: -scores[token])
        expect("tokens by score", best_first, ["\u2581a", "ab", "\u2581ab", "aba"])
        expect("blank ahead", get("add_space_prefix"), True)


def check_folder(family, folder):
    """transformers loads the folder, in shards too, with the dtype that was asked for."""
    model, tokenizer, *_ = make_folder(family, folder)
    for out, dtype, arguments in (
        ("same", torch.float32, []),
        ("f16", torch.float16, ["--type", "f16"]),
        ("shards", torch.bfloat16, ["--type", "bf16", "--shard-size", "20KB"]),
    ):
        hearth("export", folder / "model", "--out", folder / out, *arguments)
        found = AutoModelForCausalLM.from_pretrained(folder / out, dtype="auto")
        expect("dtype", found.dtype, dtype)
        for key, value in model.state_dict().items():
            if not torch.equal(found.state_dict()[key], value.to(dtype)):
                raise AssertionError(f"{key} in {dtype} is not what it was")
        expect("shards", len(list((folder / out).glob("model*.safetensors"))) > 1, out == "shards")
        for file in ("tokenizer.json", "tokenizer_config.json"):
            expect(file, (folder / out / file).read_bytes(), (folder / "model" / file).read_bytes())
    return f"{family}: folders in f32, f16 and bf16 (in shards) load in transformers with these weights"


def check_refused(family, folder):
    make_folder(family, folder)
    try:
        hearth("export", folder / "model", "--format", "gguf", "--out", folder / "x.gguf")
    except AssertionError as error:
        if f"got {REFUSED[family]}" in str(error) and not (folder / "x.gguf").exists():
            return f"{family}: refused by name"
        raise
    raise AssertionError(f"{family} was exported")


def checks(names):
    for name in names:
        if name in REFUSED:
            yield f"{name} refused", lambda folder, name=name: check_refused(name, folder)
            yield f"{name} folder", lambda folder, name=name: check_folder(name, folder)
            continue
        for kind in TYPES:
            yield f"{name} in {kind}", lambda folder, name=name, kind=kind: check_tensors(name, kind, folder)
        yield f"{name} metadata", lambda folder, name=name: check_fields(name, folder)
        yield f"{name} folder", lambda folder, name=name: check_folder(name, folder)


if __name__ == "__main__":
    logging.disable_progress_bar()
    named = sys.argv[1:]
    wide = {name: (name, lambda folder, name=name: check_k_quant(name, folder)) for name in K_QUANTS}
    families = [name for name in named or FAMILIES if name not in wide]
    sys.exit(run_checks([*checks(families), *(check for name, check in wide.items() if not named or name in named)]))
