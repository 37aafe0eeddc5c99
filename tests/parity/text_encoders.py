"""Text models of denoisers against transformers from the same files: python tests/parity/text_encoders.py [CASE...].

Per case, small models and tokenizers in a folder as diffusers lays it out: hidden states and pooled vectors of captions, of
which some are too long, within 1e-5 of float64 relative to the largest element. Needs build/cpu/tests/encoder_outputs
(HEARTH_TESTS=ON HEARTH_TARGETS=more_tests tools/build).
"""

import argparse
import json
import subprocess
import sys

import torch
from parity import ROOT, run_checks, within
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    CLIPTextConfig,
    CLIPTextModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5EncoderModel,
)
from transformers.utils import logging

TOLERANCE = 1e-5
TOKENS = 24
KEPT = (9, 18, 27)
CAPTIONS = [
    "A cat on a chair, isn't it?",
    "",
    "a cat  and the 42 cats of the hall; \u00c4pfel, \u00e9 and \u4e2d\u6587 in oil, with a hat and a cane, the sea behind them",
    "the hat",
]
# The way through attention that computes in float64.
EAGER = {"attn_implementation": "eager"}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def letters():
    """GPT-2's spelling of the 256 bytes."""
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def put_clip_tokenizer(folder):
    """vocab.json and merges.txt, as FLUX.1 has them."""
    merges = ["t h", "th e</w>", "c a", "ca t</w>", "h a", "ha t</w>", "ca t"]
    ends = [letter + "</w>" for letter in letters()]
    tokens = [*letters(), *ends, *(merge.replace(" ", "") for merge in merges), "<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    roles = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    config = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "pad_token": "<|endoftext|>", **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(tokens)


def put_t5_tokenizer(folder):
    space = "\u2581"
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), (space, -2.0)]
    pieces += [(letter, -6.0 - number / 100) for number, letter in enumerate("abcdefghijklmnopqrstuvwxyzAT,;'?\u00e942")]
    pieces += [(word, -3.0 - number / 10) for number, word in enumerate(["the", space + "the", "at", space + "c", "hat"])]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    metaspace = {"replacement": space, "prepend_scheme": "always", "split": True}
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**metaspace)]
    )
    tokenizer.decoder = decoders.Metaspace(**metaspace)
    tokenizer.post_processor = processors.TemplateProcessing(single=["$A", "</s>"], special_tokens=[("</s>", 1)])
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles).save_pretrained(folder)
    return len(pieces)


def put_qwen_tokenizer(folder):
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    tokens = [*letters(), "th", "the"]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, [("t", "h"), ("th", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=special[0], eos_token=special[2])
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder)
    return len(tokens) + len(special)


def lively(model):
    """With norms and biases that are not what they start as."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight += 0.2 * torch.randn(weight.shape)
    return model.eval()


def flux1(folder, clip_keys):
    """A pair of text models in the folder; returns what gives text and pooled vectors in float64."""
    torch.manual_seed(4)
    index = {"_class_name": "FluxPipeline", "text_encoder": ["transformers", "CLIPTextModel"]}
    index["text_encoder_2"] = ["transformers", "T5EncoderModel"]
    (folder / "model_index.json").write_text(json.dumps(index))
    size = put_clip_tokenizer(folder / "tokenizer")
    config = CLIPTextConfig(
        vocab_size=size,
        hidden_size=32,
        intermediate_size=37,
        num_hidden_layers=5,
        num_attention_heads=4,
        **{"max_position_embeddings": 40, "bos_token_id": size - 2, "eos_token_id": size - 1, **clip_keys},
    )
    clip = lively(CLIPTextModel._from_config(config, **EAGER))
    clip.save_pretrained(folder / "text_encoder")
    t5 = T5Config(
        vocab_size=put_t5_tokenizer(folder / "tokenizer_2"),
        d_model=32,
        d_kv=8,
        d_ff=37,
        num_layers=4,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
        feed_forward_proj="gated-gelu",
    )
    t5 = lively(T5EncoderModel(t5))
    t5.save_pretrained(folder / "text_encoder_2")

    def ids(tokenizer, caption, length):
        opened = AutoTokenizer.from_pretrained(folder / tokenizer)
        fixed = {"padding": "max_length", "max_length": length, "truncation": True}
        return opened(caption, return_tensors="pt", **fixed).input_ids

    def reference(caption):
        text = t5.double()(ids("tokenizer_2", caption, TOKENS)).last_hidden_state
        pooled = clip.double()(ids("tokenizer", caption, config.max_position_embeddings)).pooler_output
        return text[0], pooled[0]

    return reference


def klein(folder):
    torch.manual_seed(4)
    index = {"_class_name": "Flux2KleinPipeline", "text_encoder": ["transformers", "Qwen3ForCausalLM"]}
    (folder / "model_index.json").write_text(json.dumps(index))
    config = Qwen3Config(
        vocab_size=put_qwen_tokenizer(folder / "tokenizer"),
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=29,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        initializer_range=0.15,
    )
    model = lively(Qwen3ForCausalLM._from_config(config, **EAGER))
    model.save_pretrained(folder / "text_encoder")

    def reference(caption):
        tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
        messages = [{"role": "user", "content": caption}]
        prompt = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        fixed = {"padding": "max_length", "max_length": TOKENS * 4, "truncation": True}
        given = tokenizer(prompt, return_tensors="pt", **fixed)
        states = model.double()(given.input_ids, given.attention_mask, output_hidden_states=True).hidden_states
        return torch.cat([states[layer] for layer in KEPT], -1)[0], torch.zeros(0)

    return reference


# Case: how to make the models, and to how many tokens captions are padded.
CASES = {
    "FLUX.1": (lambda folder: flux1(folder, {}), TOKENS),
    "FLUX.1 with an old config": (lambda folder: flux1(folder, {"eos_token_id": 2, "hidden_act": "gelu"}), TOKENS),
    "FLUX.2 klein": (klein, TOKENS * 4),
}


def relative(found, exact):
    """The largest error, relative to the largest element."""
    if found.shape != exact.shape:
        raise AssertionError(f"expected {tuple(exact.shape)}, got {tuple(found.shape)}")
    return ((found.double() - exact).abs().max() / exact.abs().max()).item() if exact.numel() else 0.0


def check(case, folder):
    make, length = CASES[case]
    reference = make(folder)
    (folder / "captions.txt").write_text("\n".join(CAPTIONS) + "\n")
    program = ROOT / "build/cpu/tests/encoder_outputs"
    done = subprocess.run([str(program), "text", str(folder), str(length)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"encoder_outputs text: {done.stderr.strip()}")
    found = load_file(folder / "found.safetensors")
    gaps = [0.0, 0.0]
    # Version 4 makes CLIP's mask in this dtype first.
    torch.set_default_dtype(torch.float64)
    with torch.no_grad():
        expected = [reference(caption) for caption in CAPTIONS]
    torch.set_default_dtype(torch.float32)
    for number, (text, pooled) in enumerate(expected):
        gaps[0] = max(gaps[0], relative(found[f"text.{number}"], text))
        gaps[1] = max(gaps[1], relative(found[f"pooled.{number}"], pooled))
    text = f"{case}: hidden states within {gaps[0]:.1e}, pooled vectors within {gaps[1]:.1e} of float64"
    return within(TOLERANCE, max(gaps), text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"among {', '.join(CASES)}; all by default")
    names = parser.parse_args().cases or list(CASES)
    logging.disable_progress_bar()
    return run_checks((name, lambda folder, name=name: check(name, folder)) for name in names)


if __name__ == "__main__":
    sys.exit(main())
