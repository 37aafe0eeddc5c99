"""Tests of runs that are started, followed, stopped, resumed and used from Python, with the program."""
import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import hearth_train as hearth

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = {
    "model": {"name": "mlp", "num_classes": 10, "hidden": [16]},
    "data": {"kind": "shapes", "image_size": 8, "count": 70, "val_count": 32},
    "train": {"batch": 8, "log_every": 2},
    "optimizer": {"name": "sgd", "lr": 0.05},
    "threads": 1,
}
LONG = {**TINY, "train": {**TINY["train"], "steps": 1_000_000, "checkpoint_every": 100_000}}


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def train(self, steps=6, **options):
        return hearth.train("demo", **{**TINY, "train": {**TINY["train"], "steps": steps}}, **options)

    def start_long(self, **options):
        run = hearth.start("demo", **LONG, **options)
        self.addCleanup(run.stop)
        return run

    def wait_for_step(self, run, step=1):
        for _ in range(600):
            rows = run.metrics(frame=False)
            if rows and rows[-1]["step"] >= step:
                return
            self.assertEqual(run.state, "running")
            time.sleep(0.1)
        self.fail("no step is logged")


class Train(InFolder):
    def test_returns_a_run_with_its_metrics_and_weights(self):
        run = self.train()
        self.assertEqual((run.state, str(run.folder)), ("done", "runs/demo"))
        rows = run.metrics(frame=False)
        self.assertEqual([row["step"] for row in rows], list(range(1, 7)))
        self.assertGreater(rows[0]["loss"], 0)
        self.assertIn("eval_accuracy", rows[-1])
        self.assertIs(rows[-1]["best"], True)
        self.assertEqual(run.best, pathlib.Path("runs/demo/best.safetensors"))
        self.assertTrue(run.best.exists())
        self.assertEqual(self.train().folder, pathlib.Path("runs/demo-2"))
        self.assertEqual(hearth.Run("runs/demo").state, "done")

    def test_calls_back_for_steps_and_evaluations(self):
        steps, evaluations = [], []
        run = self.train(on_step=lambda _, row: steps.append(row["step"]), on_evaluation=lambda of, row: evaluations.append((of, row)))
        self.assertEqual(steps, list(range(1, 7)))
        self.assertTrue(all(of is run and "eval_loss" in row for of, row in evaluations))
        self.assertEqual(evaluations[-1][1]["step"], 6)

    def test_raises_the_sentence_of_the_program(self):
        for start in (lambda: self.train(model_name="mlp"), lambda: hearth.plan("demo", train={"batch": 0}), lambda: hearth.resume("none"),
                      lambda: hearth.start("no-recipe").wait()):
            with self.assertRaises(hearth.HearthError) as caught:
                start()
            self.assertEqual(caught.exception.exit_status, 2)
            self.assertNotIn("\n", str(caught.exception))
            self.assertFalse(str(caught.exception).startswith("hearth"))
        with self.assertRaisesRegex(hearth.HearthError, "train.batch"):
            hearth.train("demo", **{"train.batch": 0})

    def test_an_exception_of_a_callback_stops_training(self):
        def fail(run, row):
            raise KeyError(row["step"])

        with self.assertRaises(KeyError):
            hearth.train("demo", out="blocking", on_step=fail, **LONG)
        self.assertEqual(hearth.Run("blocking").state, "stopped")
        run = hearth.start("demo", out="background", on_step=fail, **LONG)
        with self.assertRaises(KeyError):
            run.wait()
        self.assertEqual(run.state, "stopped")

    def test_trains_on_a_folder_of_data(self):
        images = [(memoryview(bytes([40 * label + i] * 64)).cast("B", (8, 8)), f"class{label}") for label in range(2) for i in range(8)]
        hearth.datasets.write_image_folder("SHAPES", images)
        run = hearth.train("SHAPES", out="run", train={"steps": 1, "batch": 2}, data={"image_size": 32})
        self.assertEqual(run.state, "done")

    def test_shows_progress(self):
        code = "import hearth_train as hearth; hearth.train('demo', progress=True, **{})".format(
            {**TINY, "train": {**TINY["train"], "steps": 6}})
        said = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True).stderr
        self.assertIn("100.0% [##############################] 6/6  loss ", said)
        self.assertRegex(said, r"\nstep 6: eval_loss [0-9.]+, eval_accuracy [0-9.]+, the best so far *\n")


class Start(InFolder):
    def test_stops_with_a_checkpoint_and_resumes(self):
        seen = []
        run = self.start_long(on_step=lambda _, row: seen.append(row["step"]))
        self.assertEqual(run.state, "running")
        self.wait_for_step(run)
        with self.assertRaises(TimeoutError):
            run.wait(0)
        self.assertEqual(run.stop().state, "stopped")
        step = run.metrics(frame=False)[-1]["step"]
        self.assertEqual(seen, list(range(1, step + 1)))
        self.assertTrue(list(pathlib.Path("runs/demo/checkpoints").iterdir()))
        new = []
        again = hearth.resume(run, on_step=lambda _, row: new.append(row["step"]), **{"train.steps": step + 2})
        self.assertEqual((again.state, new), ("done", [step + 1, step + 2]))

    def test_a_callback_can_stop_the_run(self):
        run = self.start_long(on_step=lambda run, row: run.stop())
        self.assertEqual(run.wait().state, "stopped")
        self.assertTrue(list(run.folder.glob("checkpoints/*")), "one signal was sent: a second one ends without a checkpoint")

    def test_another_process_can_stop_the_run(self):
        run = self.start_long()
        self.wait_for_step(run)
        other = hearth.Run(run.folder)
        self.assertEqual(other.state, "running")
        self.assertEqual(other.stop().state, "stopped")
        self.assertEqual(run.wait().state, "stopped")

    def test_a_killed_python_process_leaves_the_trainer_running(self):
        code = "import hearth_train as hearth, time; hearth.start('demo', out='run', **{}); time.sleep(600)".format(LONG)
        python = subprocess.Popen([sys.executable, "-c", code], env=environment(), start_new_session=True)
        run = hearth.Run("run")
        self.addCleanup(run.stop)
        for _ in range(600):
            if run.state == "running" and run.metrics(frame=False):
                break
            time.sleep(0.1)
        os.killpg(python.pid, signal.SIGKILL)
        python.wait()
        step = run.metrics(frame=False)[-1]["step"]
        self.wait_for_step(run, step + 100)
        self.assertEqual(run.stop().state, "stopped")


class Plan(InFolder):
    def test_returns_the_plan(self):
        plan = hearth.plan("demo", gpu="rx7900xt", train={"batch": 4})
        self.assertEqual(plan["batch"], 4)
        self.assertGreater(plan["largest_batch"], 4)
        self.assertEqual(os.listdir("."), [])


class Load(InFolder):
    def test_predicts_images_and_arrays(self):
        run = self.train(steps=60)
        pixels = bytes((7 * i) % 256 for i in range(12 * 10 * 3))
        image = memoryview(pixels).cast("B", (12, 10, 3))
        hearth.datasets.write_image_folder(".", [(image, "a")])
        with hearth.load(run) as model:
            first, second = model.predict([image, "train/a/000000.png"])
            self.assertEqual(first, second)
            self.assertEqual(len(first.classes), 10)
            self.assertAlmostEqual(sum(first.classes.values()), 1, 5)
            self.assertEqual(first.label, max(first.classes, key=first.classes.get))
            with self.assertRaisesRegex(hearth.HearthError, "none.png"):
                model.predict(["none.png"])
            self.assertEqual(model.predict([image]), [first], "the session goes on after a mistake")
            with self.assertRaises(TypeError):
                model.predict("train/a/000000.png")
            with self.assertRaises(hearth.HearthError):
                model.generate("text")
        self.assertFalse(os.path.exists("runs/demo/predictions"))

    def test_returns_masks(self):
        fixtures().write_labels(pathlib.Path("."))
        run = hearth.train("segment-unet", out="run", data={"path": "MASKS", "image_size": 64, "threads": 1}, train={"steps": 2, "batch": 2},
                           threads=2)
        with hearth.load(run) as model:
            found = model.predict(["MASKS/train/images/train0.png"])[0]
        mask = bytes(memoryview(found.mask))
        self.assertEqual(memoryview(found.mask).shape, (64, 64))
        names = sorted(found.classes)
        self.assertTrue(names and set(names) <= {"street", "car", "tree"})
        fractions = sorted(mask.count(value) / len(mask) for value in set(mask))
        for got, want in zip(fractions, sorted(found.classes.values())):
            self.assertAlmostEqual(got, want)

    def test_returns_boxes(self):
        fixtures().write_labels(pathlib.Path("."))
        run = hearth.train("detect-yolox", out="run", data={"path": "BOXES", "image_size": 64, "threads": 1},
                           train={"steps": 2, "batch": 2}, threads=2)
        with hearth.load(run, detect={"score": 1e-9, "shown_score": 1e-9}) as model:
            found = model.predict(["BOXES/images/train/train0.png"])[0]
        self.assertIsNone(found.label)
        self.assertTrue(found.boxes)
        self.assertEqual(found.boxes, sorted(found.boxes, key=lambda box: -box.score))
        self.assertIn(found.boxes[0].name, ("red", "white", "platelet"))

    def test_generates_texts(self):
        fixtures().write_texts(pathlib.Path("."))
        run = hearth.train("pretrain-llama", model={"config": "config.json", "tokenizer": "TOKENIZER"}, data={"path": "FILE.txt", "context": 64},
                           train={"steps": 3, "batch": 2, "accumulate": 1}, schedule={"warmup_steps": 0})
        with hearth.load(run) as model:
            one = model.generate("Once upon", max_tokens=8)
            self.assertEqual(model.generate(["Once upon", "Another"], max_tokens=8)[0], one)
            self.assertIsInstance(model.chat("Hello?", max_tokens=4), str)
            self.assertNotEqual(model.generate("Once upon", max_tokens=8, temperature=5, seed=1),
                                model.generate("Once upon", max_tokens=8, temperature=5, seed=2))
            for options in ({"max_tokens": 0}, {"temperature": "hot"}, {"top_p": 2}, {"stop": [""]}, {"stop": "x"}):
                with self.subTest(options=options), self.assertRaises(hearth.HearthError):
                    model.generate("Once upon", **options)


def fixtures():
    """Returns tests/repo/docs, which writes small datasets."""
    path = str(ROOT / "tests/repo/docs")
    loader = importlib.machinery.SourceFileLoader("docs", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("docs", loader))
    loader.exec_module(module)
    return module


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT / "python")}


if __name__ == "__main__":
    unittest.main()
