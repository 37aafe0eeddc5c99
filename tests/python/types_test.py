"""Checks the types of the Python package with mypy."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@unittest.skipIf(shutil.which("mypy", path=os.path.dirname(sys.executable)) is None,
                 "SKIPPED: types: mypy is not installed; tools/deps services installs it")
class Types(unittest.TestCase):
    def check(self, *arguments):
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, *arguments], cwd=ROOT,
                              env={**os.environ, "MYPYPATH": "python"}, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_of_the_package_are_clean(self):
        code, said = self.check("python/hearth_train")
        self.assertEqual(code, 0, said)

    def test_reject_a_wrong_call(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write("import hearth_train as hearth\nhearth.train(3)\nx: int = hearth.Run('a').wait()\n")
            file.flush()
            code, said = self.check(file.name)
        self.assertEqual((code, said.count("error:")), (1, 2), said)


if __name__ == "__main__":
    unittest.main()
