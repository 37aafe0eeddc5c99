"""Conversion between arrays and PNG files, without other packages."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any, Tuple, Union

from ._program import PathLike

#: Path of an image file, or array of bytes [height, width], [height, width, 1], [height, width, 3] or [height, width, 4]: a NumPy
#: array or anything else with the buffer protocol.
Image = Union[PathLike, Any]

_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # PNG, section 11.2.2: color type by number of channels


def write_image(path: Path, image: Any) -> None:
    """Writes an array of bytes as a PNG file. Raises ValueError if the array has another type or shape than an image."""
    pixels, height, width, channels = _pixels(image)
    stride = width * channels
    rows = b"".join(b"\0" + pixels[row * stride : (row + 1) * stride] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks))


def read_mask(data: bytes) -> Tuple[bytes, int, int]:
    """Returns pixels, height and width of a PNG image of class numbers, as the program writes it: with a palette and without filters."""
    width, height, depth, color_type = struct.unpack(">IIBB", data[16:26])
    offset, compressed = 8, b""
    while offset < len(data):
        num_bytes, kind = struct.unpack(">I4s", data[offset : offset + 8])
        if kind == b"IDAT":
            compressed += data[offset + 8 : offset + 8 + num_bytes]
        offset += num_bytes + 12
    rows = zlib.decompress(compressed)
    stride = len(rows) // height
    if color_type != 3 or any(rows[::stride]):
        raise ValueError(
            "the mask is not a PNG image with a palette and without filters; install hearth and hearth_train of the same version"
        )
    # Each row starts with the number of its filter. Each byte has 8 / depth pixels, with the first pixel in the highest bits.
    shifts = range(8 - depth, -1, -depth)
    unpacked = [bytes((byte >> shift) & ((1 << depth) - 1) for shift in shifts) for byte in range(256)]
    lines = (rows[start + 1 : start + stride] for start in range(0, len(rows), stride))
    return b"".join((b"".join(map(unpacked.__getitem__, line)))[:width] for line in lines), height, width


def _pixels(image: Any) -> Tuple[bytes, int, int, int]:
    view = memoryview(image)
    shape = view.shape or ()
    channels = shape[2] if len(shape) == 3 else 1
    if view.format != "B" or len(shape) not in (2, 3) or channels not in _COLOR_TYPES or 0 in shape:
        raise ValueError(
            f"the image has format '{view.format}' and shape {list(shape)}; convert it to bytes (uint8) of shape [height, width] or "
            f"[height, width, channels] with 1, 3 or 4 channels"
        )
    return view.tobytes(), shape[0], shape[1], channels


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
