"""`tools/bench data`: how fast rows of a detector are made of JPEG files, by Hearth and by torch's DataLoader with Pillow.

The same two kinds of rows on the same files, on one core each, in alternating rounds: letterboxed for evaluation, and
YOLOX's mosaic with a turn, scale, mirror and shift of color for training. What counts is the time of the processor, as
another program may have it for a while. Ends with a line `ratio data-KIND VALUE` per kind: Pillow's time over Hearth's.
Exit status 77 where the pictures are not there.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import time

import numpy
import torch
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent
BAR = 1.5
GRAY = (114, 114, 114)
KINDS = ("letterbox", "mosaic")


class Pictures(torch.utils.data.Dataset):
    """Rows {f32 [3, side, side] from 0 to 255}; boxes are left out."""

    def __init__(self, files, side, kind, count):
        self.files, self.side, self.kind, self.count = files, side, kind, count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        made = self.mosaic(number) if self.kind == "mosaic" else self.letterbox(number)
        return torch.from_numpy(numpy.array(made)).permute(2, 0, 1).to(torch.float32)

    def fitted(self, number):
        image = Image.open(self.files[number % len(self.files)])
        scale = min(self.side / image.width, self.side / image.height)
        size = (max(1, int(image.width * scale)), max(1, int(image.height * scale)))
        # While it is decoded a JPEG can shrink to a half, a fourth or an eighth.
        image.draft("RGB", size)
        return image.convert("RGB").resize(size, Image.Resampling.BILINEAR)

    def letterbox(self, number):
        made = Image.new("RGB", (self.side, self.side), GRAY)
        made.paste(self.fitted(number), (0, 0))
        return made

    def mosaic(self, number):
        side = self.side
        canvas = Image.new("RGB", (2 * side, 2 * side), GRAY)
        x, y = (int(random.uniform(0.5, 1.5) * side) for _ in range(2))
        for corner in range(4):
            image = self.fitted(number if corner == 0 else random.randrange(len(self.files)))
            left = x - image.width if corner % 2 == 0 else x
            top = y - image.height if corner < 2 else y
            canvas.paste(image, (left, top))
        angle, scale = math.radians(random.uniform(-10, 10)), random.uniform(0.1, 2)
        shear = [math.tan(math.radians(random.uniform(-2, 2))) for _ in range(2)]
        # Of where a pixel is to where it comes from.
        turn = numpy.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]) * scale
        back = numpy.linalg.inv(numpy.array([[1, shear[0]], [shear[1], 1]]) @ turn)
        middle = side * numpy.array([random.uniform(0.4, 0.6), random.uniform(0.4, 0.6)])
        offset = side - back @ middle
        numbers = (back[0, 0], back[0, 1], offset[0], back[1, 0], back[1, 1], offset[1])
        made = canvas.transform((side, side), Image.Transform.AFFINE, numbers, Image.Resampling.BILINEAR, fillcolor=GRAY)
        made = self.shift_colors(made)
        return made.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else made

    @staticmethod
    def shift_colors(image):
        channels = image.convert("HSV").split()
        shifts = [random.randint(-most, most) for most in (7, 30, 30)]
        hue = channels[0].point([(value + shifts[0]) % 256 for value in range(256)])
        others = [
            channel.point([min(255, max(0, value + shift)) for value in range(256)])
            for channel, shift in zip(channels[1:], shifts[1:], strict=True)
        ]
        return Image.merge("HSV", (hue, *others)).convert("RGB")


def time_torch(files, side, kind, rows):
    """Seconds of the processor per row of a DataLoader in this process."""
    random.seed(1)
    loader = torch.utils.data.DataLoader(Pictures(files, side, kind, rows), batch_size=10)
    start = time.process_time()
    for batch in loader:
        assert batch.shape[1:] == (3, side, side)
    return (time.process_time() - start) / rows


def time_hearth(folder, side, rows):
    command = [ROOT / "hearth", "bench", "data", folder, "--side", str(side), "--rows", str(rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return {kind: answer[kind]["cpu_seconds"] / rows for kind in KINDS}


def main():
    parser = argparse.ArgumentParser(prog="tools/bench data", description="Rows of detectors, by Hearth and by Pillow.")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "../shared/data/bccd")
    parser.add_argument("--side", type=int, default=416)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    files = sorted(options.folder.rglob("*.jpg"))
    if not files:
        print(f"SKIPPED: figures of the data path: there are no pictures in {options.folder}")
        return 77
    torch.set_num_threads(1)
    hearth, pillow = ({kind: [] for kind in KINDS} for _ in range(2))
    for _ in range(options.rounds):
        for kind, seconds in time_hearth(options.folder, options.side, options.rows).items():
            hearth[kind].append(seconds)
        for kind in KINDS:
            pillow[kind].append(time_torch(files, options.side, kind, options.rows))
    for kind in KINDS:
        own, theirs = statistics.median(hearth[kind]), statistics.median(pillow[kind])
        print(f"data-{kind}: hearth {own * 1e3:.2f} ms a row, torch with Pillow {theirs * 1e3:.2f} ms, bar {BAR}")
    for kind in KINDS:
        print(f"ratio data-{kind} {statistics.median(pillow[kind]) / statistics.median(hearth[kind]):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
