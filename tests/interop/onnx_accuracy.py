"""Accuracy of exported classifiers as onnxruntime computes them: python tests/interop/onnx_accuracy.py FOLDER X.onnx...

FOLDER has a folder of images per class, in alphabetical order, with the size that the models expect.
"""

import json
import pathlib
import sys

import numpy
import onnxruntime
from PIL import Image

BATCH = 100


def images_of(folder):
    """Returns the images as uint8 [N, H, W, 3] and their class indices."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    images, labels = [], []
    for label, path in enumerate(classes):
        for file in sorted(path.iterdir()):
            images.append(numpy.asarray(Image.open(file).convert("RGB")))
            labels.append(label)
    return numpy.stack(images), numpy.array(labels)


def accuracy(path, images, labels):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    facts = session.get_modelmeta().custom_metadata_map
    mean, std = (numpy.array(json.loads(facts[key]), numpy.float32) for key in ("mean", "std"))
    num_right = 0
    for begin in range(0, len(images), BATCH):
        pixels = (images[begin:begin + BATCH].astype(numpy.float32) / 255 - mean) / std
        logits, = session.run(None, {"images": numpy.ascontiguousarray(pixels.transpose(0, 3, 1, 2))})
        num_right += (logits.argmax(1) == labels[begin:begin + BATCH]).sum()
    return num_right / len(images)


def main():
    images, labels = images_of(pathlib.Path(sys.argv[1]))
    for path in sys.argv[2:]:
        size = pathlib.Path(path).stat().st_size
        print(f"{path}: accuracy {accuracy(path, images, labels):.2%}, {size / 2**20:.2f} MiB")


if __name__ == "__main__":
    sys.exit(main())
