#include <filesystem>

#include "base/error.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "doctor/report.h"

namespace hearth::cli {
namespace {

struct Arguments {
  std::string root = "/";
  bool json = false;
};

void run_doctor(const Arguments& arguments) {
  std::error_code error;
  if (!fs::is_directory(arguments.root, error))
    user_error("expected a folder for --root, got '{}'", arguments.root);
  system::Tree tree(arguments.root);
  system::Machine machine = system::read_machine(tree);
  // Of another machine's files nothing follows about this program and its disk.
  const bool here = arguments.root == "/";
  std::optional<doctor::Program> program;
  if (here) {
    program = doctor::own_program();
    const fs::space_info space = fs::space(".", error);
    if (!error) machine.free_disk_bytes = static_cast<int64_t>(space.available);
  }
  const doctor::Program* asked = program ? &*program : nullptr;
  const std::vector<doctor::Finding> findings = doctor::examine(machine, asked);
  say("{}",
      arguments.json ? doctor::to_json(machine, asked, findings) : doctor::to_text(machine, asked, findings));
  exit_code() = doctor::exit_status(findings);
}

}  // namespace

void add_doctor(CLI::App& app) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("doctor",
                                      "What this machine has, what is wrong with it, and the commands that "
                                      "fix it (exit code 1: warnings, 2: broken)");
  verb->add_option("--root", arguments->root,
                   "examine the files of another machine below this folder (sys, proc, dev, etc)");
  verb->add_flag("--json", arguments->json, "print JSON");
  set_example(*verb, "hearth doctor");
  verb->callback([=] { run_doctor(*arguments); });
}

}  // namespace hearth::cli
