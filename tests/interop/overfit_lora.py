"""A LoRA learns eight pictures by heart: python tests/interop/overfit_lora.py.

On a small random FLUX.1 with its encoders, from eight drawn pictures with captions, through caches, training and
`hearth generate`. The loss at fixed noise falls tenfold, and each caption brings its picture back: nearer to it than to the other
seven, as the autoencoder itself shows them. Needs ./hearth.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from PIL import Image, ImageDraw

# In place of this folder, whose gguf.py is not the package that diffusers asks for.
TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[0] = str(TESTS)
sys.path.append(str(TESTS / "parity"))
import tiny_flux  # noqa: E402
from diffusers import AutoencoderKL  # noqa: E402
from parity import hearth, run_checks  # noqa: E402

SIDE, TOKENS = 64, 16
NAMES = ["a red house", "a green house", "a blue house", "a grey house", "a red dog", "a green dog", "a blue dog", "a grey dog"]
COLORS = ["red", "green", "blue", "yellow", "white", "purple", "orange", "cyan"]


def draw(folder):
    folder.mkdir()
    for number, (name, color) in enumerate(zip(NAMES, COLORS, strict=True)):
        picture = Image.new("RGB", (SIDE, SIDE), (30 * number, 200 - 25 * number, 100))
        corners = [8 + 2 * number, 10, 40 + 2 * number, 44]
        (ImageDraw.Draw(picture).ellipse if number % 2 == 0 else ImageDraw.Draw(picture).rectangle)(corners, fill=color)
        picture.save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(name)


def seen_by_autoencoder(model, folder):
    """The pictures after the encoder and the decoder."""
    autoencoder = AutoencoderKL.from_pretrained(model / "vae")
    made = []
    for number in range(len(NAMES)):
        pixels = np.asarray(Image.open(folder / f"{number}.png"), dtype=np.float32) / 127.5 - 1
        with torch.no_grad():
            latents = autoencoder.encode(torch.tensor(pixels).permute(2, 0, 1)[None]).latent_dist.mean
            picture = autoencoder.decode(latents).sample[0].permute(1, 2, 0)
        made.append(np.clip(np.round(127.5 * (picture.numpy() + 1)), 0, 255))
    return made


def psnr(a, b):
    return 10 * np.log10(255**2 / max(1e-9, float(np.mean((a - b) ** 2))))


def overfit(folder):
    model, pictures, run = folder / "model", folder / "pictures", folder / "run"
    tiny_flux.write_flux(model)
    draw(pictures)
    (folder / "recipe.yaml").write_text(f"""
model: {{path: {model}}}
data: {{kind: captions, path: {pictures}, image_size: {SIDE}, val_share: 0, cache: {folder / "cache"}}}
train: {{objective: flow, steps: 1500, batch: 8, eval_every: 1500, eval_on_start: true, clip_norm: 1}}
diffuse: {{sampling: sigmoid, std: 1.5, dropout: 0, text_tokens: {TOKENS}, steps: 20, guidance: 1, val_images: 8}}
adapter: {{name: lora, rank: 48, alpha: 48}}
optimizer: {{name: adamw, lr: 0.004}}
schedule: {{name: cosine, warmup_steps: 50}}
""")
    hearth("train", folder / "recipe.yaml", "--out", run)
    records = [json.loads(line) for line in (run / "trainer_log.jsonl").read_text().splitlines()]
    losses = [record["eval_loss"] for record in records if "eval_loss" in record]
    expected = seen_by_autoencoder(model, pictures)
    scores = []
    for number, name in enumerate(NAMES):
        file = folder / f"made-{number}.png"
        hearth("generate", run, "--prompt", name, "--seed", 5, "--steps", 20, "--out", file)
        made = np.asarray(Image.open(file), dtype=np.float32)
        near = [psnr(made, other) for other in expected]
        if int(np.argmax(near)) != number:
            raise AssertionError(f"'{name}' brought back picture {int(np.argmax(near))}, not {number}: {near}")
        scores.append(near[number])
    fall = losses[0] / losses[-1]
    text = f"eight pictures by LoRA: loss at fixed noise {losses[0]:.3f} to {losses[-1]:.4f} ({fall:.1f}x), PSNR {min(scores):.1f} to {max(scores):.1f} dB"
    if fall < 10:
        raise AssertionError(f"{text}; tenfold is expected")
    return text


if __name__ == "__main__":
    sys.exit(run_checks([("eight pictures", overfit)]))
