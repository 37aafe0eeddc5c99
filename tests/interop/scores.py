"""Curves and calibration of classifiers, Hearth's against numpy in float64: python tests/interop/scores.py [SETS].

Average precision is that of scikit-learn's average_precision_score: the sum over distinct scores of precision times the gain
in recall. Precision at a recall, F1 at a threshold and the expected calibration error are computed from their definitions.
Random sets: equal scores, scores of exactly 0 and 1, classes without samples, one sample. All numbers must agree to 1e-12.
Needs build/cpu/tests/score_numbers (tools/build) or the program that HEARTH_SCORE_NUMBERS names.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("HEARTH_SCORE_NUMBERS", ROOT / "build/cpu/tests/score_numbers")
TOLERANCE = 1e-12
POINTS = numpy.arange(101) / 100


def make_set(seed):
    """Classes and probabilities of random samples; the seed decides how many, and which scores are equal."""
    rng = numpy.random.default_rng(seed)
    samples, classes = int(rng.choice([1, 7, 60, 500])), int(rng.integers(2, 8))
    logits = rng.normal(size=(samples, classes)) * rng.choice([0.5, 3, 30])
    truths = rng.integers(0, rng.integers(1, classes + 1), size=samples)
    logits[numpy.arange(samples), truths] += rng.choice([0, 2])
    scores = numpy.exp(logits - logits.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    if rng.random() < 0.5:
        scores = numpy.round(scores, int(rng.integers(1, 3)))
    return truths, scores.astype(numpy.float32)


def curve(hit, score):
    """Positives, average precision, precision at recalls, F1 at thresholds, of one class."""
    positives = int(hit.sum())
    if positives == 0:
        return [0, -1]
    order = numpy.argsort(-score, kind="stable")
    hit, score = hit[order], score[order].astype(numpy.float64)
    ends = numpy.append(numpy.nonzero(numpy.diff(score))[0], hit.size - 1)
    hits = numpy.cumsum(hit)[ends]
    precision, recall = hits / (ends + 1), hits / positives
    average = float(numpy.sum(numpy.diff(numpy.concatenate([[0], recall])) * precision))
    at_recall = [precision[recall >= point].max() for point in POINTS]
    f1 = []
    for point in POINTS:
        found = score >= point
        f1.append(2 * float(hit[found].sum()) / (int(found.sum()) + positives))
    return [positives, average, *at_recall, *f1]


def calibration_error(truths, scores):
    confidence = scores.max(axis=1).astype(numpy.float64)
    right = scores.argmax(axis=1) == truths
    error = 0.0
    for i in range(15):
        inside = (confidence > i / 15) & (confidence <= (i + 1) / 15)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return error


def check(seed, folder):
    truths, scores = make_set(seed)
    file = folder / "scores.txt"
    rows = [" ".join([str(truth), *(f"{one:.9g}" for one in row)]) for truth, row in zip(truths, scores)]
    file.write_text(f"{len(scores)} {scores.shape[1]}\n" + "\n".join(rows) + "\n")
    lines = subprocess.run([PROGRAM, file], check=True, capture_output=True, text=True).stdout.splitlines()
    expected = [curve(truths == label, scores[:, label]) for label in range(scores.shape[1])]
    expected.append([calibration_error(truths, scores)])
    for name, line, numbers in zip([*range(scores.shape[1]), "calibration"], lines, expected, strict=True):
        got = [float(number) for number in line.split()]
        if len(got) != len(numbers) or not numpy.allclose(got, numbers, rtol=0, atol=TOLERANCE):
            sys.exit(f"set {seed}, {name}: expected {numbers[:4]} ..., got {got[:4]} ...")


def main():
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(sets):
            check(seed, pathlib.Path(folder))
    print(f"{sets} sets of scores agree with numpy to {TOLERANCE}")


main()
