"""Use of trained models: predictions, generated texts and generated images."""

from __future__ import annotations

import base64
import importlib
import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Type, Union, overload

from ._image import Image, read_mask, write_image
from ._program import HearthError, PathLike, error_of, overrides, program, run_json


class Box(NamedTuple):
    """A detected object: class, score, and upper left corner and size of its box in pixels."""

    name: str
    score: float
    x: float
    y: float
    width: float
    height: float


class Prediction(NamedTuple):
    """Prediction for an image."""

    #: Classification: all classes with their probabilities, most probable first. Segmentation: classes with their fraction of the pixels.
    classes: Dict[str, float]
    #: Detected objects with the highest scores first; empty for other tasks.
    boxes: List[Box]
    #: Segmentation: class numbers [height, width], a NumPy array if NumPy is installed, otherwise a memoryview. None for other tasks.
    mask: Any

    @property
    def label(self) -> Optional[str]:
        """Most probable class, or most frequent class of a mask; None for detectors."""
        return next(iter(self.classes), None)


class Model:
    """A model that is loaded once and answers many requests. Close it, or use it in a `with` statement, to free its memory."""

    def __init__(self, path: PathLike, **values: Any) -> None:
        self.path = Path(path)
        self._overrides = overrides(values)
        self._sessions: Dict[str, _Session] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="hearth-")
        self._num_images = 0

    def predict(self, images: Iterable[Image]) -> List[Prediction]:
        """Returns a prediction for each image: a path, or an array of bytes (uint8) [height, width] or [height, width, 3].

        Raises HearthError if a file is not an image, or if the model does not classify images, detect objects or segment images.
        """
        if isinstance(images, (str, os.PathLike)) or len(getattr(images, "shape", (0,) * 4)) != 4:
            raise TypeError("predict() takes a list of images or an array [number, height, width, channels]; write predict([image])")
        return [self._predict(image) for image in images]

    @overload
    def generate(self, prompts: str, **options: Any) -> str: ...

    @overload
    def generate(self, prompts: Sequence[str], **options: Any) -> List[str]: ...

    def generate(self, prompts: Union[str, Sequence[str]], **options: Any) -> Union[str, List[str]]:
        """Returns the continuation of a text, or of each text in a list, by a language model.

        `options`: max_tokens, temperature (0: greedy), top_k, top_p, repetition_penalty, stop (a list of texts) and seed.
        """
        if isinstance(prompts, str):
            return self._text({"prompt": prompts, **options})
        return [self._text({"prompt": prompt, **options}) for prompt in prompts]

    def chat(self, messages: Union[str, Sequence[Mapping[str, Any]]], **options: Any) -> str:
        """Returns the answer of a chat model to a list of messages {"role": ..., "content": ...}, or to one text of the user.

        `options`: as for generate().
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self._text({"messages": list(messages), **options})

    def generate_images(
        self,
        prompt: str,
        out: PathLike = "image.png",
        *,
        size: Optional[str] = None,
        steps: Optional[int] = None,
        guidance: Optional[float] = None,
        count: int = 1,
        seed: int = 0,
    ) -> List[Path]:
        """Generates images with a diffusion model and returns the paths of the image files. Each call loads the model.

        `out`: NAME.png or NAME.jpg; several images are named NAME-1.png and so on. `size`: width and height in pixels, as "1024x768".
        """
        arguments = ["generate", str(self.path), *self._overrides, "--json", "--prompt", prompt, "--out", os.fspath(out)]
        for flag, value in (("size", size), ("steps", steps), ("guidance", guidance), ("count", count), ("seed", seed)):
            if value is not None:
                arguments += [f"--{flag}", str(value)]
        return [Path(image["file"]) for image in run_json(*arguments)["images"]]

    def close(self) -> None:
        """Ends the processes of the model and deletes its temporary files."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        self._folder.cleanup()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def _session(self, verb: str) -> "_Session":
        if verb not in self._sessions:
            self._sessions[verb] = _Session([verb, str(self.path), *self._overrides, "--requests"])
        return self._sessions[verb]

    def _predict(self, image: Image) -> Prediction:
        if not isinstance(image, (str, os.PathLike)):
            self._num_images += 1
            file = Path(self._folder.name, f"{self._num_images:09}.png")
            write_image(file, image)
            try:
                return self._predict(file)
            finally:
                file.unlink()
        response = self._session("predict").ask({"image": os.fspath(image)})
        return Prediction(
            classes={item["name"]: item.get("probability", item.get("fraction")) for item in response.get("classes", [])},
            boxes=[Box(**box) for box in response.get("boxes", [])],
            mask=_mask(base64.b64decode(response["mask"])) if "mask" in response else None,
        )

    def _text(self, request: Mapping[str, Any]) -> str:
        text: str = self._session("generate").ask(request)["text"]
        return text


class _Session:
    """A process that answers JSON requests, one per line. It ends when this process ends, because its standard input is then closed."""

    def __init__(self, arguments: List[str]) -> None:
        self._errors = tempfile.TemporaryFile()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [str(program()), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            start_new_session=True,
        )

    def ask(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        """Returns the response to a request. Raises HearthError if the program refuses it or has ended."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        text = json.dumps(request)
        with self._lock:
            try:
                process.stdin.write(text + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:
                status = process.wait()
                self._errors.seek(0)
                raise error_of(status, self._errors.read().decode(errors="replace"))
        response: Dict[str, Any] = json.loads(line)
        if "error" in response:
            raise HearthError(response["error"])
        return response

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def _mask(png: bytes) -> Any:
    pixels, height, width = read_mask(png)
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        return memoryview(pixels).cast("B", (height, width))
    return numpy.frombuffer(pixels, numpy.uint8).reshape(height, width)


def load(path: PathLike, **values: Any) -> Model:
    """Opens a trained model: a Run, a run folder, a model folder or an adapter. The first request loads the weights.

    A run is opened with its best weights, or with its last weights if it has no best ones. `values`: keys of the recipe to change, such
    as device="gpu".
    """
    return Model(path, **values)
