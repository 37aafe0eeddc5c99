"""Tests of the wheel that tools/packaging/wheel.py writes, installed in a new environment without a network."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = (ROOT / "hearth").resolve()


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        tree, env = cls.folder / "tree", cls.folder / "env"
        # The program of this build needs libraries of this system only.
        (tree / "bin").mkdir(parents=True)
        shutil.copy2(PROGRAM, tree / "bin/hearth")
        shutil.copytree(ROOT / "python", tree / "python", ignore=shutil.ignore_patterns("__pycache__"))
        run(sys.executable, ROOT / "tools/packaging/wheel.py", tree, "0.0.1", os.uname().machine, cls.folder,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        run(sys.executable, "-m", "venv", env)
        cls.python = env / "bin/python"
        run(cls.python, "-m", "pip", "-q", "install", "--no-index", *cls.folder.glob("*.whl"))

    def in_environment(self, code, **environment):
        """Runs Python code in the new environment without HEARTH_PROGRAM and with an empty PATH, and returns its output."""
        return run(self.python, "-c", "import hearth_train as hearth\n" + code, cwd=self.folder, env={"PATH": "", **environment})

    def test_finds_the_program_of_the_wheel(self):
        self.assertEqual(self.in_environment("print(hearth.program())").strip(), str(self.folder / "env/bin/hearth"))

    def test_prefers_the_program_that_the_environment_names(self):
        self.assertEqual(self.in_environment("print(hearth.program())", HEARTH_PROGRAM="/bin/true").strip(), "/bin/true")

    def test_has_type_information(self):
        self.assertTrue(list((self.folder / "env/lib").glob("python3*/site-packages/hearth_train/py.typed")))

    def test_trains_the_demo(self):
        said = self.in_environment("run = hearth.train('demo', train={'steps': 20}, data={'count': 320, 'val_count': 64})\n"
                                   "print(run.state, len(run.metrics(frame=False)), run.best.exists())")
        self.assertEqual(said.split(), ["done", "20", "True"])


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    unittest.main()
