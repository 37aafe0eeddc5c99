"""COCO's numbers of boxes, Hearth's against pycocotools: python tests/interop/coco.py [SETS].

Random and adversarial sets: no predictions, no truths, crowds, equal scores, boxes twice, areas at 32 x 32 and 96 x 96,
more than 100 detections, classes without truth, category ids with gaps. All 12 numbers and AP, AP50, recall and the
precision-recall curve at IoU 0.5 of each class must agree to 1e-12, and the summary to the letter. Needs build/cpu/tests/coco_numbers (tools/build) or the
program that HEARTH_COCO_NUMBERS names.
"""

import contextlib
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("HEARTH_COCO_NUMBERS", ROOT / "build/cpu/tests/coco_numbers")
SIDE = 400
TOLERANCE = 1e-12
# At the borders of small, medium and large, and whole pictures.
SIZES = [(32, 32), (96, 96), (16, 64), (31, 33), (97, 95), (SIDE, SIDE), (1, 1)]


def random_box(rng):
    if rng.random() < 0.3:
        width, height = rng.choice(SIZES)
    elif rng.random() < 0.5:
        width, height = rng.randint(1, 120), rng.randint(1, 120)
    else:
        width, height = round(rng.uniform(1, 150), 2), round(rng.uniform(1, 150), 2)
    return [rng.randint(0, int(SIDE - width)), rng.randint(0, int(SIDE - height)), width, height]


def moved(rng, box, most):
    x, y, width, height = box
    if rng.random() < 0.2:
        return list(box)
    shift = [rng.randint(-most, most) for _ in range(4)]
    return [x + shift[0], y + shift[1], max(1, width + shift[2]), max(1, height + shift[3])]


def make_set(seed):
    """Truths and results; the seed decides what is extreme about them."""
    rng = random.Random(seed)
    ids = rng.sample(range(1, 200), rng.randint(1, 6))
    images = [{"id": i, "file_name": f"{n:04}.jpg", "width": SIDE, "height": SIDE}
              for n, i in enumerate(rng.sample(range(1, 500), rng.randint(1, 12)))]
    with_truth = ids if rng.random() < 0.5 else ids[: max(1, len(ids) // 2)]
    annotations, results = [], []
    scores = [0.1, 0.5, 0.5, 0.9] if rng.random() < 0.4 else None
    crowds, most_found = rng.choice([0, 0.2, 0.6]), rng.choice([0, 3, 30, 160])
    for image in images:
        boxes = []
        for _ in range(0 if seed % 17 == 0 else rng.choice([0, 1, 5, 20])):
            box = random_box(rng) if not boxes or rng.random() < 0.8 else list(rng.choice(boxes))
            boxes.append(box)
            area = box[2] * box[3] if rng.random() < 0.7 else rng.choice([1024, 9216, 1023.5, 9216.5, 40])
            annotations.append({"id": len(annotations) + 1, "image_id": image["id"], "category_id": rng.choice(with_truth),
                                "bbox": box, "area": area, "iscrowd": int(rng.random() < crowds)})
        here = [a for a in annotations if a["image_id"] == image["id"]]
        for _ in range(0 if seed % 13 == 0 else rng.randint(0, most_found)):
            near = rng.choice(here) if here and rng.random() < 0.7 else None
            label = near["category_id"] if near and rng.random() < 0.8 else rng.choice(ids)
            box = moved(rng, near["bbox"], rng.choice([1, 5, 20])) if near else random_box(rng)
            results.append({"image_id": image["id"], "category_id": label, "bbox": box,
                            "score": rng.choice(scores) if scores else rng.random()})
    rng.shuffle(annotations)
    rng.shuffle(results)
    categories = [{"id": i, "name": f"class {i}"} for i in ids]
    return {"images": images, "annotations": annotations, "categories": categories}, results


def load_results(truth, results):
    """COCO.loadRes refuses an empty list."""
    if results:
        return truth.loadRes(results)
    empty = COCO()
    empty.dataset = {"images": truth.dataset["images"], "categories": truth.dataset["categories"], "annotations": []}
    empty.createIndex()
    return empty


def wanted_numbers(truths, results):
    """The 12 numbers, those of each class, and the printed summary."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = truths
        truth.createIndex()
        evaluation = COCOeval(truth, load_results(truth, results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        with contextlib.redirect_stdout(printed):
            evaluation.summarize()
    precision, recall = evaluation.eval["precision"], evaluation.eval["recall"]

    def mean(values):
        return float(numpy.mean(values[values > -1])) if (values > -1).any() else -1.0

    def curve(values):
        return values.tolist() if (values > -1).any() else []

    classes = [[mean(precision[:, :, k, 0, 2]), mean(precision[0, :, k, 0, 2]), mean(recall[:, k, 0, 2]),
                *curve(precision[0, :, k, 0, 2])] for k in range(precision.shape[2])]
    return [float(s) for s in evaluation.stats], classes, printed.getvalue()


def compare(seed, folder):
    truths, results = make_set(seed)
    (folder / "truth.json").write_text(json.dumps(truths))
    (folder / "results.json").write_text(json.dumps(results))
    said = subprocess.run([PROGRAM, folder / "truth.json", folder / "results.json"], capture_output=True, text=True)
    if said.returncode != 0:
        raise AssertionError(f"set {seed}: {said.stderr}")
    numbers, classes, printed = wanted_numbers(json.loads(json.dumps(truths)), results)
    lines = said.stdout.splitlines(keepends=True)
    got = [float(line) for line in lines[:12]]
    got_classes = [[float(word) for word in line.split()] for line in lines[12 : 12 + len(classes)]]
    worst = float(numpy.abs(numpy.array(got) - numpy.array(numbers)).max())
    for got_class, one in zip(got_classes, classes, strict=True):
        worst = max(worst, float(numpy.abs(numpy.array(got_class) - numpy.array(one)).max()))
    if not worst <= TOLERANCE:
        raise AssertionError(f"set {seed}: off by {worst}\n{got}\n{numbers}\n{got_classes}\n{classes}")
    if "".join(lines[12 + len(classes) :]) != printed:
        raise AssertionError(f"set {seed}: printed {lines[12 + len(classes):]}\nexpected {printed}")
    return worst, numbers[0]


def main():
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        found = [compare(seed, pathlib.Path(folder)) for seed in range(sets)]
    scored = sum(0 < ap < 1 for _, ap in found)
    if scored < sets // 2:
        raise AssertionError(f"only {scored} of {sets} sets have an AP between 0 and 1")
    print(f"{sets} sets equal pycocotools, the worst number off by {max(worst for worst, _ in found):.1e}")


if __name__ == "__main__":
    main()
