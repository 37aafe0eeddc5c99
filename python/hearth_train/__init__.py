"""Python interface of Hearth, a native program that trains neural networks.

    import hearth_train as hearth

    run = hearth.train("demo", **{"train.steps": 100})     # trains and shows progress
    print(run.metrics())                                   # loss and validation metrics by step
    print(hearth.load(run).predict(["IMAGE.png"]))         # predicts with the best weights

Training runs in a separate process: if Python exits or crashes, training continues. The package uses the program whose path is in the
environment variable HEARTH_PROGRAM, otherwise the program that the wheel installed, otherwise `hearth` in PATH.
"""

from . import datasets
from ._model import Box, Model, Prediction, load
from ._program import HearthError, plan, program
from ._run import Run, resume, start, train

__all__ = ["Box", "HearthError", "Model", "Prediction", "Run", "datasets", "load", "plan", "program", "resume", "start", "train"]
