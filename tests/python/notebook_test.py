"""Runs examples/quickstart.ipynb in a Jupyter kernel."""
import os
import pathlib
import tempfile
import unittest

try:
    import nbclient
    import nbformat
except ImportError:
    nbclient = None

SHORT = "train={'steps': 60}, data={'count': 640, 'val_count': 64}"
ROOT = pathlib.Path(__file__).resolve().parents[2]


@unittest.skipIf(nbclient is None, "SKIPPED: the notebook: nbclient is not installed; tools/deps services installs it")
class Notebook(unittest.TestCase):
    def test_runs_from_top_to_bottom(self):
        notebook = nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4)
        nbformat.validate(notebook)
        for cell in notebook.cells:
            cell.source = cell.source.replace('hearth.train("demo")', f'hearth.train("demo", {SHORT})')
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PYTHONPATH"] = str(ROOT / "python")
            self.addCleanup(os.environ.pop, "PYTHONPATH")
            nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
        outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        said = "".join(output.text for output in outputs if output.output_type == "stream")
        self.assertIn("100.0% [##############################] 60/60", said, "the progress bar")
        self.assertEqual(sum("image/png" in output.get("data", {}) for output in outputs), 2, "plots")
        self.assertTrue(any("Run('runs/demo', done)" in output.get("data", {}).get("text/plain", "") for output in outputs))


if __name__ == "__main__":
    unittest.main()
