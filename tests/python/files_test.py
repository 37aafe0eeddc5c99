"""Tests of files that the Python package reads and writes without the program."""
import json
import os
import pathlib
import struct
import tempfile
import unittest
import zlib

from hearth_train import datasets
from hearth_train._program import overrides
from hearth_train.log import LogReader


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


def line(step, **values):
    return json.dumps({"current_steps": step, **values}) + "\n"


class Log(Files):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "trainer_log.jsonl"
        self.reader = LogReader(self.path)
        self.addCleanup(self.reader.close)

    def steps(self):
        return [record["current_steps"] for record in self.reader.read()]

    def append(self, text):
        with open(self.path, "a") as file:
            file.write(text)

    def replace(self, text):
        new = self.folder / "new"
        new.write_text(text)
        os.replace(new, self.path)

    def test_returns_each_line_once(self):
        self.assertEqual(self.steps(), [])
        self.append(line(1, loss=2.5))
        self.assertEqual(self.reader.read(), [{"current_steps": 1, "loss": 2.5}])
        self.assertEqual(self.steps(), [])
        self.append(line(2) + line(3))
        self.assertEqual(self.steps(), [2, 3])

    def test_returns_a_line_when_it_is_complete(self):
        text = line(1, loss=0.25)
        self.append(text[:9])
        self.assertEqual(self.steps(), [])
        self.append(text[9:])
        self.assertEqual(self.steps(), [1])

    def test_skips_lines_that_are_no_records(self):
        self.append('{"current_steps":\n[1]\nnull\n{"loss":1}\n' + line(4))
        self.assertEqual(self.steps(), [4])

    def test_continues_after_the_common_lines_of_a_replaced_log(self):
        self.append(line(1) + line(2, loss=1) + line(3))
        self.assertEqual(self.steps(), [1, 2, 3])
        self.replace(line(1) + line(2, loss=1))
        self.assertEqual(self.steps(), [])
        self.append(line(2, event="rolled back") + line(3, loss=9))
        self.assertEqual(self.steps(), [2, 3])
        self.replace(line(1) + line(2, loss=1) + line(2, event="rolled back") + line(3, loss=9) + line(4))
        self.assertEqual(self.steps(), [4])

    def test_returns_all_lines_of_another_log(self):
        self.append(line(1, loss=1))
        self.assertEqual(self.steps(), [1])
        self.replace(line(1, loss=2) + line(2))
        self.assertEqual(self.steps(), [1, 2])


class Overrides(unittest.TestCase):
    def test_flattens_nested_values(self):
        self.assertEqual(overrides({"train": {"steps": 9, "batch": 4}, "model.hidden": [16, 8], "data": "a b"}),
                         ["train.steps=9", "train.batch=4", "model.hidden=[16, 8]", "data=a b"])

    def test_writes_values_as_yaml(self):
        self.assertEqual(overrides({"a": True, "b": False, "c": 1e-5, "d": ["x", "y: z"], "e": None, "f": pathlib.Path("p/q")}),
                         ["a=true", "b=false", "c=1e-05", 'd=["x", "y: z"]', "f=p/q"])


class Datasets(Files):
    def test_writes_records(self):
        path = self.folder / "new" / "chats.jsonl"
        records = [{"text": "one\ntwo"}, {"messages": [{"role": "user", "content": "\u00fc"}]}]
        self.assertEqual(datasets.write_jsonl(path, iter(records)), 2)
        self.assertEqual([json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()], records)
        self.assertEqual(os.listdir(path.parent), ["chats.jsonl"])

    def test_leaves_the_old_file_if_a_record_is_bad(self):
        path = self.folder / "records.jsonl"
        datasets.write_jsonl(path, [{"text": "old"}])
        with self.assertRaises(TypeError):
            datasets.write_jsonl(path, [{"text": "new"}, {"text": object()}])
        self.assertEqual(path.read_text(), '{"text": "old"}\n')

    def test_writes_images_of_each_label(self):
        gray = memoryview(bytes(range(6))).cast("B", (2, 3))
        color = memoryview(bytes(range(12))).cast("B", (2, 2, 3))
        file = self.folder / "photo.jpg"
        file.write_bytes(b"jpeg")
        counts = datasets.write_image_folder(self.folder / "out", [(gray, "cat"), (color, "dog"), (file, "cat")])
        self.assertEqual(counts, {"cat": 2, "dog": 1})
        self.assertEqual((self.folder / "out/train/cat/000001.jpg").read_bytes(), b"jpeg")
        self.assertEqual(decoded(self.folder / "out/train/cat/000000.png"), (3, 2, 0, bytes(range(6))))
        self.assertEqual(decoded(self.folder / "out/train/dog/000000.png"), (2, 2, 2, bytes(range(12))))

    def test_refuses_what_is_no_image_or_label(self):
        gray = memoryview(bytes(6)).cast("B", (2, 3))
        for image, label in ((gray, "../cat"), (gray, ".."), (gray, ""), (bytes(6), "cat"), (gray.cast("B").cast("b"), "cat")):
            with self.subTest(label=label), self.assertRaises(ValueError):
                datasets.write_image_folder(self.folder, [(image, label)])


def decoded(path):
    """Returns width, height, color type and pixels of a PNG file whose rows have no filter."""
    data, at, pixels = path.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0]
        if kind == b"IHDR":
            width, height, _, color_type = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            pixels += body
        at += 12 + size
    rows = zlib.decompress(pixels)
    stride = len(rows) // height
    return width, height, color_type, b"".join(rows[y * stride + 1 : (y + 1) * stride] for y in range(height))


if __name__ == "__main__":
    unittest.main()
