"""tests/forked.py JOBS SCRIPT=LOG...: runs Python scripts as forks of a process that has imported torch and transformers,
JOBS at a time. Prints `STATUS SECONDS SCRIPT` as each ends; LOG gets its output.
"""
import os
import pathlib
import runpy
import sys
import time
import traceback


def run(script, log):
    """Becomes the script: output, arguments and folder of modules are as if Python had started it."""
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.argv = [script]
    sys.path[0] = str(pathlib.Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        sys.exit(1)
    sys.exit(0)


def main():
    jobs = int(sys.argv[1])
    waiting = [argument.split("=", 1) for argument in sys.argv[2:]]
    running = {}
    import torch  # noqa: F401
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast  # noqa: F401

    while waiting or running:
        while waiting and len(running) < jobs:
            script, log = waiting.pop(0)
            child = os.fork()
            if child == 0:
                run(script, log)
            running[child] = script, time.monotonic()
        child, status = os.wait()
        script, start = running.pop(child)
        print(os.waitstatus_to_exitcode(status), round(time.monotonic() - start), script, flush=True)


main()
