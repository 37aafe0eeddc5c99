"""Python interface of Hearth, a native trainer of neural networks.

    import hearth_train as hearth

    run = hearth.train("demo", **{"train.steps": 100})     # trains and shows progress
    print(run.metrics())                                   # loss and validation metrics by step
    print(hearth.load(run).predict(["IMAGE.png"]))         # predicts with the best weights

The trainer is a separate process: if Python exits or crashes, training continues. The package needs the program `hearth`: the one that
the wheel installs, the one that the environment variable HEARTH_PROGRAM names, or the one in PATH.
"""

from . import datasets
from ._model import Box, Model, Prediction, load
from ._program import HearthError, plan, program
from ._run import Run, resume, start, train

__all__ = ["Box", "HearthError", "Model", "Prediction", "Run", "datasets", "load", "plan", "program", "resume", "start", "train"]
