"""A real small model: llama2.c's stories260K as a transformers folder, and what it tells: python tests/parity/stories.py.

Greedy, it must tell the 200 tokens that are published with it. Needs ./hearth and shared data; exit status 77 without.
python tests/parity/stories.py stories260K.bin tok512.bin FOLDER writes that folder alone, of llama2.c's checkpoint and tokenizer.
"""

import json
import os
import pathlib
import struct
import sys

import numpy
import torch
from safetensors.torch import save_file

from parity import ROOT, hearth, run_checks

FAMILY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rope_theta": 10000.0}


def read_header(data):
    dim, hidden, layers, heads, kv_heads, vocab, context = struct.unpack("<7i", data[:28])
    return {
        **FAMILY,
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": abs(vocab),
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": vocab > 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def half_rotated(weight, num_heads):
    """llama2.c turns neighboring elements of a head, transformers one half with the other."""
    rows, columns = weight.shape
    pairs = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)


def read_weights(data, config):
    layers, dim, hidden = (config[key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size"))
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    kv_dim = dim // heads * kv_heads
    values = torch.from_numpy(numpy.frombuffer(data, dtype="<f4", offset=28).copy())
    at = 0

    def take(*shape):
        nonlocal at
        count = int(numpy.prod(shape))
        at += count
        return values[at - count : at].view(*shape)

    weights = {"model.embed_tokens.weight": take(config["vocab_size"], dim)}
    stacked = {
        "input_layernorm": take(layers, dim),
        "self_attn.q_proj": take(layers, dim, dim),
        "self_attn.k_proj": take(layers, kv_dim, dim),
        "self_attn.v_proj": take(layers, kv_dim, dim),
        "self_attn.o_proj": take(layers, dim, dim),
        "post_attention_layernorm": take(layers, dim),
        "mlp.gate_proj": take(layers, hidden, dim),
        "mlp.down_proj": take(layers, dim, hidden),
        "mlp.up_proj": take(layers, hidden, dim),
    }
    weights["model.norm.weight"] = take(dim)
    for name, stack in stacked.items():
        for layer in range(layers):
            turned = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads}.get(name)
            weight = half_rotated(stack[layer], turned) if turned else stack[layer]
            weights[f"model.layers.{layer}.{name}.weight"] = weight.contiguous()
    return weights


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """One field of a protocol buffer: text and messages by length, whole numbers, floats."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def sentencepiece_model(data, vocab_size):
    """tokenizer.bin as a SentencePiece model (sentencepiece_model.proto): BPE with bytes to fall back to."""
    kinds = {0: 2, 1: 3, 2: 3}  # <unk>, <s>, </s>; then 256 bytes; the rest are normal pieces.
    model, at = b"", 4
    for index in range(vocab_size):
        score, length = struct.unpack_from("<fi", data, at)
        text = data[at + 8 : at + 8 + length]
        at += 8 + length
        names = {0: b"<unk>", 1: b"<s>", 2: b"</s>"}
        piece = names.get(index) or (b"<0x%02X>" % (index - 3) if index < 259 else text.replace(b" ", "\u2581".encode()))
        kind = kinds.get(index, 6 if index < 259 else 1)
        model += field(1, field(1, piece) + field(2, score) + field(3, kind))
    trainer = field(3, 2) + field(4, vocab_size) + field(35, 1) + field(40, 0) + field(41, 1) + field(42, 2)
    return model + field(2, trainer) + field(3, field(1, b"identity") + field(3, 1) + field(4, 0) + field(5, 1))


def write_folder(checkpoint, tokenizer, folder):
    """llama2.c's files as config.json, model.safetensors and tokenizer.model."""
    data = checkpoint.read_bytes()
    config = read_header(data)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(read_weights(data, config), folder / "model.safetensors")
    (folder / "tokenizer.model").write_bytes(sentencepiece_model(tokenizer.read_bytes(), config["vocab_size"]))


def check_greedy(source, folder):
    write_folder(source / "checkpoint_legacy.bin", source / "tokenizer.bin", folder)
    told = hearth("generate", folder, "--prompt", "", "--max-tokens", 200).strip()
    expected = (source / "expected_greedy_200.txt").read_text().strip()
    if told != expected:
        same = len(os.path.commonprefix([told, expected]))
        raise AssertionError(f"after {same} characters: {told[same : same + 40]!r}, not {expected[same : same + 40]!r}")
    return f"stories260K tells the {len(expected)} published characters of 200 greedy tokens"


def main():
    if len(sys.argv) == 4:
        return write_folder(*map(pathlib.Path, sys.argv[1:]))
    source = pathlib.Path(os.environ.get("HEARTH_DATA", ROOT.parent / "shared" / "data")) / "models" / "stories260k"
    if not source.exists():
        print(f"SKIPPED: stories260K: there is no {source}")
        return 77
    return run_checks([("stories260K", lambda folder: check_greedy(source, folder))])


if __name__ == "__main__":
    sys.exit(main())
