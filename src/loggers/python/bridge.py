"""Sends the reports of a run to wandb or trackio, the package that the first argument names.

Reads one JSON object per line from standard input: {"call": NAME, "arguments": {...}}. Answers each with one line on standard output:
{"id": RESULT} or {"error": TEXT}.
"""
import importlib
import json
import os
import sys


class Bridge:
    def __init__(self, package):
        self.package = package
        self.module = self.run = None

    def open(self, name, project, config, folder, id):
        """Starts the run, or continues the run `id`, and returns its id."""
        self.module = importlib.import_module(self.package)
        project = project or os.environ.get(self.package.upper() + "_PROJECT") or "hearth"
        if self.package == "wandb":
            settings = self.module.Settings(silent=True, console="off")
            self.run = self.module.init(project=project, name=name, config=config, dir=folder, id=id or None, resume="allow", settings=settings)
            return self.run.id
        # trackio identifies a run by its name, so a new run gets a name that no other run of the project has.
        self.run = self.module.init(project=project, name=id or self.unused_name(project, name), config=config, resume="allow")
        return self.run.name

    def unused_name(self, project, name):
        """Returns the name, with a number if a run of the project has the name already."""
        try:
            names = {run.name for run in self.module.Api().runs(project)}
        except Exception:  # there is no such project yet
            names = set()
        number = 2
        unused = name
        while unused in names:
            unused, number = f"{name}-{number}", number + 1
        return unused

    def send(self, rows, images):
        for row in rows:
            shown = {f"samples/{image['name']}": self.module.Image(image["file"]) for image in images if row["is_evaluation"] and image["step"] == row["step"]}
            self.run.log({**row["metrics"], **shown}, step=row["step"])

    def finish(self, exit_status, files):
        if self.package == "wandb":
            for file in files:
                self.run.save(file, base_path=os.path.dirname(file), policy="now")
            self.run.finish(exit_code=exit_status)
        else:
            self.run.finish()


def main():
    # Sends output of the packages to standard error, so that it does not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    bridge = Bridge(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"id": getattr(bridge, request["call"])(**request["arguments"])}
        except ModuleNotFoundError as error:
            answer = {"error": f"{sys.executable} has no package '{error.name}'; run {sys.executable} -m pip install {bridge.package}, or set HEARTH_LOGGER_PYTHON to a Python that has it"}
        except Exception as error:  # the packages raise many types; all are reported
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


main()
