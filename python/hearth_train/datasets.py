"""Functions that write datasets in layouts that the program reads."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Iterable, Mapping, Tuple

from ._image import Image, write_image
from ._program import PathLike


def write_jsonl(path: PathLike, records: Iterable[Mapping[str, Any]]) -> int:
    """Writes records to a JSONL file, one per line, and returns their number.

    A record is a chat {"messages": [{"role": "user", "content": ...}, ...]}, {"prompt": ..., "completion": ...},
    {"instruction": ..., "output": ...}, {"text": ...}, or a preference {"prompt": ..., "chosen": ..., "rejected": ...}.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    count = 0
    with open(temporary, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    temporary.replace(path)
    return count


def write_image_folder(folder: PathLike, samples: Iterable[Tuple[Image, str]], split: str = "train") -> Dict[str, int]:
    """Writes images to FOLDER/SPLIT/LABEL/NUMBER.png and returns the number of images of each label.

    `samples`: pairs of an image and its label. An image is the path of a file, which is copied, or an array of bytes [height, width] or
    [height, width, 3]. `split`: "train" for training images, "test" for evaluation images.
    """
    counts: Dict[str, int] = {}
    for image, label in samples:
        if not label or label in (".", "..") or "/" in label or "\0" in label:
            raise ValueError(f"the label '{label}' cannot be the name of a folder; use a label without '/' that is not empty, '.' or '..'")
        number = counts.get(label, 0)
        target = Path(folder, split, label)
        target.mkdir(parents=True, exist_ok=True)
        if isinstance(image, (str, os.PathLike)):
            shutil.copyfile(image, target / f"{number:06}{Path(image).suffix}")
        else:
            write_image(target / f"{number:06}.png", image)
        counts[label] = number + 1
    return counts


__all__ = ["write_image_folder", "write_jsonl"]
