"""GGUF files as models: python tests/interop/gguf_base.py [CHECK...].

Per family, gguf-py writes a small random model in each supported type (K-quants as random blocks). Its weights must equal
gguf-py's, bit for bit, and its loss that of transformers with the same file. Exported models must give the losses and
tokens of their folders, also as nf4, int8 and fp8 bases of LoRA. Needs ./hearth (tools/build).
"""

import os
import pathlib
import shutil
import sys
import tempfile

# gguf.py in this folder would hide the package.
sys.path.pop(0)
os.environ["TQDM_DISABLE"] = "1"  # transformers shows a bar for each file.

import gguf  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, logging  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "parity"))
from family_tokenizers import make_tokenizer  # noqa: E402
from language import EAGER, SMALL, train_on  # noqa: E402
from parity import hearth, logged_losses, run_checks, within  # noqa: E402

LOSS_TOLERANCE = 1e-5
CONTEXT = 24
BATCH = 3
VOCAB = 300
SIZES = {**SMALL, "vocab_size": VOCAB, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2}
# Settings equal to transformers' defaults where its GGUF reader ignores a key of the file.
FAMILIES = {
    "llama": {"model_type": "llama"},
    "llama tied": {"model_type": "llama", "tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "sliding_window": 48},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 128},
    "phi3": {"model_type": "phi3"},
    "gemma2": {"model_type": "gemma2", "head_dim": 256, "query_pre_attn_scalar": 256},
}
Type = gguf.GGMLQuantizationType
PLAIN = (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1)
# Byte offsets of the f16 scales of a super-block, and a factor of scales that keeps weights near 0.05.
SUPER = {Type.Q2_K: ((80, 82), 1e-3), Type.Q3_K: ((108,), 5e-4), Type.Q4_K: ((0, 2), 5e-5)}
SUPER |= {Type.Q5_K: ((0, 2), 3e-5), Type.Q6_K: ((208,), 1e-5)}
TEXT = "abba ab <think> 12 abab\n  \u00e4"


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: expected {wanted}, got {got}")


def make_folder(family, folder):
    """A model with its tokenizer, and f32.gguf."""
    torch.manual_seed(1)
    options = {**SIZES, **FAMILIES[family]}
    config = AutoConfig.for_model(options.pop("model_type"), **options)
    model = AutoModelForCausalLM.from_config(config, **EAGER)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight += 0.2 * torch.randn(weight.shape)
    model.save_pretrained(folder / "model")
    tokenizer, *_ = make_tokenizer(family)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    wrapped.save_pretrained(folder / "model")
    hearth("export", folder / "model", "--format", "gguf", "--type", "f32", "--out", folder / "f32.gguf")
    return model, wrapped


def blocks_of(kind, shape, generator):
    """Random blocks of a type that gguf-py only reads."""
    places, scale = SUPER[kind]
    size, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (*shape[:-1], shape[-1] // size, num_bytes), dtype=numpy.uint8)
    for at in places:
        values = (scale * generator.uniform(0.5, 1, blocks.shape[:-1])).astype(numpy.float16)
        blocks[..., at : at + 2] = values[..., None].view(numpy.uint8)
    return blocks.reshape(*shape[:-1], -1)


def rewrite(source, target, kind):
    """Copies a GGUF file with its matrices in another type."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], sub_type=inner)
    generator = numpy.random.default_rng(5)
    for tensor in reader.tensors:
        value = numpy.array(tensor.data)
        if value.ndim < 2:
            writer.add_tensor(tensor.name, value)
            continue
        packed = blocks_of(kind, value.shape, generator) if kind in SUPER else gguf.quantize(value, kind)
        writer.add_tensor(tensor.name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def halves(weight, heads):
    """Reorders rows from adjacent RoPE pairs to halves, the inverse of llama.cpp's converter."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def dequantized(path, config):
    """Returns a function from a tensor's name to gguf-py's values in transformers' layout."""
    names = {"mistral": "llama"}
    arch = names.get(config.model_type, config.model_type)
    key = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[arch]
    map_ = gguf.get_tensor_name_map(key, config.num_hidden_layers)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}

    def value(name):
        tensor = tensors[map_.get_name(name, try_suffixes=(".weight", ".bias"))]
        found = gguf.dequantize(tensor.data, tensor.tensor_type)
        if arch == "llama" and "q_proj" in name:
            return halves(found, config.num_attention_heads)
        if arch == "llama" and "k_proj" in name:
            return halves(found, config.num_key_value_heads)
        return found - numpy.float32(1) if arch == "gemma2" and name.endswith("norm.weight") else found

    return value


def check_values(family, kind, folder):
    model, _ = make_folder(family, folder)
    rewrite(folder / "f32.gguf", folder / "m.gguf", kind)
    hearth("export", folder / "m.gguf", "--type", "f32", "--out", folder / "out")
    value = dequantized(folder / "m.gguf", model.config)
    found = load_file(folder / "out" / "model.safetensors")
    for name, weight in found.items():
        if not numpy.array_equal(weight.numpy().view(numpy.uint32), value(name).view(numpy.uint32)):
            raise AssertionError(f"{name} of {kind.name} differs from gguf-py's")
    wanted = set(model.state_dict()) - ({"lm_head.weight"} if model.config.tie_word_embeddings else set())
    expect("tensors", set(found), wanted)
    return f"{family} in {kind.name}: {len(found)} tensors are gguf-py's, bit for bit"


def tokens_for(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB, (BATCH * CONTEXT + 1,), generator=generator, dtype=torch.int32)


def first_loss(folder, model, tokens, *arguments):
    shutil.rmtree(folder / "run", ignore_errors=True)
    save_file({"tokens": tokens}, folder / "data.safetensors")
    more = [f"model.path={model}", "adapter.rank=4", *arguments]
    run = train_on(folder, "data.safetensors", 1e-3, {"context": CONTEXT}, {"steps": 1, "batch": BATCH}, more)
    return logged_losses(run)[0]


def torch_loss(model, tokens):
    x = tokens[:-1].long().view(BATCH, CONTEXT)
    y = tokens[1:].long()
    with torch.no_grad():
        logits = model(x, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), y).item()


def check_loss(family, kind, folder):
    make_folder(family, folder)
    rewrite(folder / "f32.gguf", folder / "m.gguf", kind)
    tokens = tokens_for(seed=7)
    # The reader of Phi-3 assumes a padding token that this vocabulary lacks.
    options = {"dtype": torch.float32, "pad_token_id": 0, **EAGER}
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file="m.gguf", **options).double()
    wanted = torch_loss(model, tokens)
    found = first_loss(folder, folder / "m.gguf", tokens)
    gap = abs(found - wanted) / wanted
    return within(LOSS_TOLERANCE, gap, f"{family} in {kind.name}: transformers' loss of the file to {gap:.1e}")


def check_round_trip(family, folder):
    """Checks that the exported file gives the losses, tokens and token ids of the folder, and that a run on it can be merged."""
    _, tokenizer = make_folder(family, folder)
    tokens = tokens_for(seed=9)
    file = folder / "f32.gguf"
    for quantize in ("", "nf4", "int8", "fp8"):
        arguments = [f"adapter.quantize={quantize}"] if quantize else []
        wanted = first_loss(folder, folder / "model", tokens, *arguments)
        found = first_loss(folder, file, tokens, *arguments)
        # Gemma's norms are stored with 1 added, which rounds.
        if found != wanted if family != "gemma2" else abs(found - wanted) > LOSS_TOLERANCE * wanted:
            raise AssertionError(f"base {quantize or 'f32'}: expected the loss {wanted}, got {found}")
    arguments = ["--prompt", "5 6 7 8", "--tokens", "--max-tokens", 20, "--context", 60]
    expect("tokens", hearth("generate", file, *arguments), hearth("generate", folder / "model", *arguments))
    hearth("export", folder / "run", "--type", "f32", "--out", folder / "merged")
    merged = AutoModelForCausalLM.from_pretrained(folder / "merged")
    expect("layers", len(merged.model.layers), SIZES["num_hidden_layers"])
    read = PreTrainedTokenizerFast.from_pretrained(folder / "merged")
    expect("ids", read(TEXT)["input_ids"], tokenizer(TEXT)["input_ids"])
    return f"{family}: f32, nf4, int8 and fp8 bases, tokens and tokenizer of the file are those of the folder"


def checks(names):
    for name in names:
        yield f"{name} round trip", lambda folder, name=name: check_round_trip(name, folder)
        for kind in (Type.F16, Type.Q8_0, Type.Q4_K):
            yield f"{name} in {kind.name}", lambda folder, name=name, kind=kind: check_values(name, kind, folder)
            yield f"{name} loss", lambda folder, name=name, kind=kind: check_loss(name, kind, folder)
    for kind in (*PLAIN, *SUPER):
        for name in ("qwen2", "llama"):
            yield f"{name} in {kind.name}", lambda folder, name=name, kind=kind: check_values(name, kind, folder)
        yield f"llama {kind.name} loss", lambda folder, kind=kind: check_loss("llama", kind, folder)


if __name__ == "__main__":
    logging.disable_progress_bar()
    # Config and tokenizer of each file are unpacked into the user's cache.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        sys.exit(run_checks(checks(sys.argv[1:] or list(FAMILIES))))
