"""A FLUX.1 and a DiT of random weights, small enough to train in seconds, and caches of sd-scripts; all without any library."""

import io
import json
import random
import struct
import zipfile

WIDTH, HEADS, LATENTS, POOLED, TEXT, TOKENS = 64, 4, 16, 64, 64, 16


def safetensors(weights, seed):
    """A file of f32 weights, {name: (shape, scale)}: uniform numbers, or ones where the scale is None."""
    numbers, header, data = random.Random(seed), {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, scale) in weights.items():
        count = 1
        for length in shape:
            count *= length
        values = [1.0] * count if scale is None else [numbers.uniform(-scale, scale) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Weights(dict):
    """The weights of layers under their names, with their shapes and scales."""

    def linear(self, name, outputs, inputs, bias=True):
        self[f"{name}.weight"] = ((outputs, inputs), (3 / inputs) ** 0.5)
        if bias:
            self[f"{name}.bias"] = ((outputs,), 0.1)

    def norm(self, name, width, bias=True):
        self[f"{name}.weight"] = ((width,), None)
        if bias:
            self[f"{name}.bias"] = ((width,), 0.1)

    def conv(self, name, outputs, inputs):
        self[f"{name}.weight"] = ((outputs, inputs, 3, 3), (1 / (3 * inputs)) ** 0.5)
        self[f"{name}.bias"] = ((outputs,), 0.1)


def denoiser():
    config = {"_class_name": "FluxTransformer2DModel", "patch_size": 1, "in_channels": 4 * LATENTS, "num_layers": 1,
              "num_single_layers": 1, "attention_head_dim": WIDTH // HEADS, "num_attention_heads": HEADS,
              "joint_attention_dim": TEXT, "pooled_projection_dim": POOLED, "guidance_embeds": True, "axes_dims_rope": [4, 6, 6]}
    made = Weights()
    made.linear("x_embedder", WIDTH, 4 * LATENTS)
    made.linear("context_embedder", WIDTH, TEXT)
    for name, inputs in (("timestep", 256), ("guidance", 256), ("text", POOLED)):
        stem = f"time_text_embed.{name}_embedder"
        made.linear(f"{stem}.linear_1", WIDTH, inputs)
        made.linear(f"{stem}.linear_2", WIDTH, WIDTH)
    for block, streams in (("transformer_blocks.0", 2), ("single_transformer_blocks.0", 1)):
        for name in ("to_q", "to_k", "to_v") + (("add_q_proj", "add_k_proj", "add_v_proj", "to_out.0", "to_add_out") if streams == 2 else ()):
            made.linear(f"{block}.attn.{name}", WIDTH, WIDTH)
        for name in ("norm_q", "norm_k") + (("norm_added_q", "norm_added_k") if streams == 2 else ()):
            made.norm(f"{block}.attn.{name}", WIDTH // HEADS, bias=False)
    for name in ("", "_context"):
        made.linear(f"transformer_blocks.0.norm1{name}.linear", 6 * WIDTH, WIDTH)
        made.linear(f"transformer_blocks.0.ff{name}.net.0.proj", 4 * WIDTH, WIDTH)
        made.linear(f"transformer_blocks.0.ff{name}.net.2", WIDTH, 4 * WIDTH)
    made.linear("single_transformer_blocks.0.norm.linear", 3 * WIDTH, WIDTH)
    made.linear("single_transformer_blocks.0.proj_mlp", 4 * WIDTH, WIDTH)
    made.linear("single_transformer_blocks.0.proj_out", WIDTH, 5 * WIDTH)
    made.linear("norm_out.linear", 2 * WIDTH, WIDTH)
    made.linear("proj_out", 4 * LATENTS, WIDTH)
    return config, made


def autoencoder(width=8, levels=4, latents=LATENTS):
    config = {"_class_name": "AutoencoderKL", "block_out_channels": [width] * levels, "latent_channels": latents,
              "down_block_types": ["DownEncoderBlock2D"] * levels, "up_block_types": ["UpDecoderBlock2D"] * levels,
              "layers_per_block": 1, "norm_num_groups": 2, "mid_block_add_attention": False, "shift_factor": 0.1159,
              "scaling_factor": 0.3611, "use_quant_conv": False, "use_post_quant_conv": False}
    made = Weights()

    def resnet(name):
        for number in (1, 2):
            made.norm(f"{name}.norm{number}", width)
            made.conv(f"{name}.conv{number}", width, width)

    for half, layers, resize, inputs, outputs in (("encoder", 1, "downsamplers", 3, 2 * latents),
                                                  ("decoder", 2, "upsamplers", latents, 3)):
        blocks = "down_blocks" if half == "encoder" else "up_blocks"
        made.conv(f"{half}.conv_in", width, inputs)
        for level in range(levels):
            for layer in range(layers):
                resnet(f"{half}.{blocks}.{level}.resnets.{layer}")
            if level < levels - 1:
                made.conv(f"{half}.{blocks}.{level}.{resize}.0.conv", width, width)
        for number in (0, 1):
            resnet(f"{half}.mid_block.resnets.{number}")
        made.norm(f"{half}.conv_norm_out", width)
        made.conv(f"{half}.conv_out", outputs, width)
    return config, made


def clip(vocabulary):
    config = {"model_type": "clip_text_model", "vocab_size": vocabulary, "hidden_size": POOLED, "intermediate_size": POOLED,
              "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 77, "eos_token_id": 1}
    made = Weights()
    made["text_model.embeddings.token_embedding.weight"] = ((vocabulary, POOLED), 1)
    made["text_model.embeddings.position_embedding.weight"] = ((77, POOLED), 1)
    layer = "text_model.encoder.layers.0"
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "mlp.fc1", "mlp.fc2"):
        made.linear(f"{layer}.{name}", POOLED, POOLED)
    for name in (f"{layer}.layer_norm1", f"{layer}.layer_norm2", "text_model.final_layer_norm"):
        made.norm(name, POOLED)
    return config, made


def t5(vocabulary, heads=4):
    config = {"model_type": "t5", "vocab_size": vocabulary, "d_model": TEXT, "d_kv": TEXT // heads, "d_ff": 2 * TEXT,
              "num_layers": 1, "num_heads": heads, "feed_forward_proj": "gated-gelu"}
    made = Weights()
    made["shared.weight"] = ((vocabulary, TEXT), 1)
    layer = "encoder.block.0.layer"
    for name in "qkvo":
        made.linear(f"{layer}.0.SelfAttention.{name}", TEXT, TEXT, bias=False)
    made[f"{layer}.0.SelfAttention.relative_attention_bias.weight"] = ((32, heads), 1)
    made.linear(f"{layer}.1.DenseReluDense.wi_0", 2 * TEXT, TEXT, bias=False)
    made.linear(f"{layer}.1.DenseReluDense.wi_1", 2 * TEXT, TEXT, bias=False)
    made.linear(f"{layer}.1.DenseReluDense.wo", TEXT, 2 * TEXT, bias=False)
    for name in (f"{layer}.0.layer_norm", f"{layer}.1.layer_norm", "encoder.final_layer_norm"):
        made.norm(name, TEXT, bias=False)
    return config, made


def tokenizer():
    """Words that a few pictures need, and <unk> for others."""
    words = "<pad> </s> <unk> a red green blue house sks dog on grey ground of photo".split()
    special = [{"id": number, "content": words[number], "special": True} for number in (0, 1)]
    end = {"id": "</s>", "ids": [1], "tokens": ["</s>"]}
    single = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}]
    model = {"type": "WordLevel", "unk_token": "<unk>", "vocab": {word: number for number, word in enumerate(words)}}
    post = {"type": "TemplateProcessing", "single": single, "special_tokens": {"</s>": end}}
    return len(words), json.dumps({"added_tokens": special, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": post,
                                   "model": model})


def write_flux(folder):
    """The folders of FLUX.1 as diffusers has them."""
    vocabulary, words = tokenizer()
    parts = {"transformer": denoiser(), "vae": autoencoder(), "text_encoder": clip(vocabulary), "text_encoder_2": t5(vocabulary)}
    for number, (name, (config, weights)) in enumerate(parts.items()):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(config))
        file = "model.safetensors" if name.startswith("text") else "diffusion_pytorch_model.safetensors"
        (folder / name / file).write_bytes(safetensors(weights, number))
    for name in ("tokenizer", "tokenizer_2"):
        (folder / name).mkdir()
        (folder / name / "tokenizer.json").write_text(words)
        (folder / name / "tokenizer_config.json").write_text('{"pad_token": "<pad>", "eos_token": "</s>"}')
    index = {"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"],
             "vae": ["diffusers", "AutoencoderKL"], "text_encoder": ["transformers", "CLIPTextModel"],
             "text_encoder_2": ["transformers", "T5EncoderModel"]}
    (folder / "model_index.json").write_text(json.dumps(index))


def dit(latents=4, classes=3):
    config = {"_class_name": "DiTTransformer2DModel", "sample_size": 8, "patch_size": 2, "in_channels": latents,
              "out_channels": 2 * latents, "num_layers": 1, "attention_head_dim": WIDTH // HEADS, "num_attention_heads": HEADS,
              "num_embeds_ada_norm": classes}
    made = Weights()
    made["pos_embed.proj.weight"] = ((WIDTH, latents, 2, 2), 0.2)
    made["pos_embed.proj.bias"] = ((WIDTH,), 0.1)
    block = "transformer_blocks.0"
    made[f"{block}.norm1.emb.class_embedder.embedding_table.weight"] = ((classes + 1, WIDTH), 1)
    made.linear(f"{block}.norm1.emb.timestep_embedder.linear_1", WIDTH, 256)
    made.linear(f"{block}.norm1.emb.timestep_embedder.linear_2", WIDTH, WIDTH)
    made.linear(f"{block}.norm1.linear", 6 * WIDTH, WIDTH)
    for name in ("to_q", "to_k", "to_v", "to_out.0"):
        made.linear(f"{block}.attn1.{name}", WIDTH, WIDTH)
    made.linear(f"{block}.ff.net.0.proj", 4 * WIDTH, WIDTH)
    made.linear(f"{block}.ff.net.2", WIDTH, 4 * WIDTH)
    made.linear("proj_out_1", 2 * WIDTH, WIDTH)
    made.linear("proj_out_2", 2 * latents * 4, WIDTH)
    return config, made


def write_part(folder, part, seed=0):
    """A network in a folder of diffusers."""
    config, weights = part
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "diffusion_pytorch_model.safetensors").write_bytes(safetensors(weights, seed))


def write_dit(folder):
    """The folders of a DiT as diffusers has them, and an autoencoder for it."""
    write_part(folder / "transformer", dit())
    write_part(folder / "vae", autoencoder(latents=4))
    labels = {"0": "tench, Tinca tinca", "1": "goldfish, Carassius auratus", "2": "golden retriever"}
    index = {"_class_name": "DiTPipeline", "id2label": labels, "transformer": ["diffusers", "DiTTransformer2DModel"],
             "vae": ["diffusers", "AutoencoderKL"], "scheduler": ["diffusers", "DDIMScheduler"]}
    (folder / "model_index.json").write_text(json.dumps(index))


def npy(shape, values):
    """An array of f32 as numpy stores it."""
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + struct.pack(f"<{len(values)}f", *values)


def write_npz(path, arrays):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        for name, array in arrays.items():
            members.writestr(f"{name}.npy", array)
    path.write_bytes(archive.getvalue())


def write_kohya(folder, count, side):
    """What sd-scripts cache of pictures of side x side pixels and their captions."""
    numbers = random.Random(0)
    latents = side // 8
    folder.mkdir(parents=True)
    for i in range(count):
        values = lambda number: [numbers.gauss(0, 1) for _ in range(number)]
        write_npz(folder / f"{i}_{side:04d}x{side:04d}_flux.npz",
                  {f"latents_{latents}x{latents}": npy((LATENTS, latents, latents), values(LATENTS * latents**2))})
        write_npz(folder / f"{i}_flux_te.npz",
                  {"l_pooled": npy((POOLED,), values(POOLED)), "t5_out": npy((TOKENS, TEXT), values(TOKENS * TEXT))})
