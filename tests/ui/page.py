#!/usr/bin/env python3
"""Tests the live page in headless Chromium. tests/ui/page.py [FOLDER]: keeps screenshots in FOLDER (build/ui).

Trains with ./hearth, opens the page of the runs, and checks that it draws and updates, that its buttons save a checkpoint, stop and
continue the run, and that it shows a crash. Exit status 77: there is no ./hearth, or Chromium cannot be installed.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "hearth"
RECIPE = """model: {name: smallcnn}
data: {kind: shapes, image_size: 16, count: 800, val_count: 64}
train: {steps: 100000, batch: 8, eval_every: 50, checkpoint_every: 100000, log_every: 100}
optimizer: {name: sgd, lr: 0.05}
threads: 1
"""
STATE = "document.querySelector('#summary .state')?.textContent"
HOSTILE = "<img src=x onerror=alert(1)>"


def wait_for(test, what, seconds=120):
    until = time.monotonic() + seconds
    while not test():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.1)


def train(folder, name):
    """Starts a training in a separate process group and waits for its first steps."""
    output = open(folder / f"{name}.txt", "w")
    process = subprocess.Popen([PROGRAM, "train", folder / "recipe.yaml", "--out", folder / "runs" / name],
                               stdout=output, stderr=output, start_new_session=True)
    log = folder / "runs" / name / "trainer_log.jsonl"
    wait_for(lambda: log.exists() and log.stat().st_size > 2000, f"the first steps of {name}")
    return process


def last_line(page, name):
    """Returns the text of a run in the list."""
    row = f"[...document.querySelectorAll('.run')].find(row => row.querySelector('.name').title === {json.dumps(name)})"
    return page.evaluate(f"{row}.innerText")


def step_of(page):
    return int(page.evaluate("document.querySelector('#summary .fact b').innerText").replace(",", ""))


def check_drawing(page):
    """Checks that each canvas on the screen has pixels of a curve, and that nothing is wider than the window."""
    page.wait_for("document.querySelectorAll('canvas').length >= 5")
    page.wait_for("""[...document.querySelectorAll('canvas')].every(canvas => {
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let colored = 0;
        for (let i = 0; i < data.length; i += 4)
            colored += data[i + 3] > 200 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60;
        return colored > 100;
    })""")
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, f"the page is {wide} pixels wider than the window"


def stop(page):
    """Stops the selected run with the button."""
    page.wait_for("document.getElementById('act-stop')?.disabled === false")
    page.evaluate("document.getElementById('act-stop').click()")
    page.wait_for("document.getElementById('confirm').open")
    page.evaluate("document.querySelector('#confirm [value=yes]').click()")
    page.wait_for(f"{STATE} === 'stopped'")


def check_page(page, folder, shots, processes):
    run = folder / "runs" / "demo"
    page.wait_for(f"{STATE} === 'running'")
    check_drawing(page)
    before = step_of(page)
    wait_for(lambda: step_of(page) > before, "a later step on the page")
    for width, dark in ((1200, False), (1200, True), (400, False), (400, True)):
        page.look(width, 900, dark)
        time.sleep(0.5)
        check_drawing(page)
        page.screenshot(shots / f"page-{width}-{'dark' if dark else 'light'}.png")
    page.look(1200, 900, False)
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0, "a name was read as HTML"
    assert HOSTILE in page.evaluate("document.getElementById('runs').innerText")

    page.evaluate("document.getElementById('act-save').click()")
    wait_for(lambda: "as requested" in (run / "trainer_log.jsonl").read_text(), "the event of a saved checkpoint")
    assert any((run / "checkpoints").iterdir())
    page.wait_for("document.getElementById('summary').innerText.includes('as requested')")
    for tab in ("samples", "events", "recipe", "plan", "report", "curves"):
        page.evaluate(f"document.getElementById('tab-{tab}').click()")
        page.wait_for("document.getElementById('view').innerText.length > 20", 20)
        page.screenshot(shots / f"{tab}.png")

    stop(page)
    assert processes[0].wait(60) == 130, "the run did not end as after an interrupt"
    stopped_at = step_of(page)

    page.wait_for("document.getElementById('act-continue')?.disabled === false")
    page.evaluate("document.getElementById('act-continue').click()")
    page.wait_for(f"{STATE} === 'running'")
    wait_for(lambda: step_of(page) > stopped_at, "a step after the run was continued")
    stop(page)


def check_crash(page, folder, processes):
    processes.append(train(folder, "other"))
    wait_for(lambda: "other" in page.evaluate("document.getElementById('runs').innerText"), "the new run in the list")
    wait_for(lambda: "running" in last_line(page, "other"), "the state of the new run")
    os.killpg(processes[1].pid, signal.SIGKILL)
    wait_for(lambda: "crashed" in last_line(page, "other"), "the crash")


def main():
    shots = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "ui")
    program = browser.find_chromium()
    if program is None:
        subprocess.run([ROOT / "tools" / "deps", "browser"], check=False)
        program = browser.find_chromium()
    if program is None or not PROGRAM.exists():
        print("SKIPPED: the live page:", "Chromium could not be installed" if program is None else "there is no ./hearth")
        return 77
    shots.mkdir(parents=True, exist_ok=True)
    processes = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "recipe.yaml").write_text(RECIPE)
        hostile = folder / "runs" / HOSTILE
        hostile.mkdir(parents=True)
        (hostile / "trainer_log.jsonl").write_text('{"current_steps":1,"total_steps":2,"loss":1,"event":"<b>bold</b>"}\n')
        server = subprocess.Popen([PROGRAM, "ui", folder / "runs"], stdout=subprocess.PIPE, text=True)
        try:
            processes.append(train(folder, "demo"))
            url = re.search(r"http://\S+", server.stdout.readline()).group(0)
            with browser.Browser(program) as page:
                page.open(url + "#run=demo")
                check_page(page, folder, shots, processes)
                check_crash(page, folder, processes)
                assert not page.errors, page.errors
        finally:
            server.terminate()
            server.wait(20)
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
    print(f"the live page draws, updates, stops and continues a run and shows a crash; screenshots in {shots}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
