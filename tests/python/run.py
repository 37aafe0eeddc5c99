#!/usr/bin/env python3
"""Runs the tests of the Python package: every *_test.py in this folder. tests/python/run.py [TEST...] runs those named, as unittest does.

The tests use ./hearth and the sources in python/. Exit status 77: there is no ./hearth.
"""
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "hearth"


def main():
    if not PROGRAM.exists():
        print("SKIPPED: the Python package: there is no ./hearth; tools/build makes it")
        return 77
    os.environ["HEARTH_PROGRAM"] = str(PROGRAM)
    sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).parent)]
    loader = unittest.defaultTestLoader
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names) if names else loader.discover(pathlib.Path(__file__).parent, "*_test.py")
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
