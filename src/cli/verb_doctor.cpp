#include <filesystem>

#include "base/error.h"
#include "base/output.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "doctor/report.h"

namespace hearth::cli {
namespace {

struct DoctorArguments {
  std::string root = "/";
  bool json = false, deep = false;
  doctor::DeepOptions tests;
  std::string memory, out = "doctor.html";
};

void check(const DoctorArguments& arguments) {
  std::error_code error;
  if (!fs::is_directory(arguments.root, error))
    user_error("expected a folder for --root, got '{}'", arguments.root);
  if (arguments.deep && arguments.root != "/")
    user_error("--deep cannot be combined with --root '{}': the GPUs of another machine cannot be tested",
               arguments.root);
  if (arguments.tests.device != "gpu" && arguments.tests.device != "emulated")
    user_error("expected gpu or emulated for --device, got '{}'", arguments.tests.device);
  for (const double seconds : {arguments.tests.memory_seconds, arguments.tests.load_seconds})
    if (!(seconds >= 0.01 && seconds <= 3600)) user_error("expected 0.01 to 3600 seconds, got {}", seconds);
  if (arguments.deep) check_writable_file(arguments.out);
}

int64_t bytes_of(const std::string& text) {
  const std::optional<int64_t> bytes = parse_bytes(text);
  if (!bytes || *bytes <= 0) user_error("expected a size like 8GiB for --memory, got '{}'", text);
  return *bytes;
}

/// Runs the tests of --deep. Must be called before this process opens a GPU, because the tests run in forked
/// processes.
doctor::DeepResult test_gpus(const DoctorArguments& arguments, const system::Machine& machine) {
  return doctor::examine_deep(machine, arguments.tests, [&](const std::string& text) {
    if (!arguments.json) say("{}\n", printable(text));
  });
}

void run_doctor(const DoctorArguments& arguments) {
  check(arguments);
  system::Tree tree(arguments.root);
  system::Machine machine = system::read_machine(tree);
  const doctor::DeepResult deep = arguments.deep ? test_gpus(arguments, machine) : doctor::DeepResult{};
  // Not with --root: this program and its disk are not on the examined machine.
  std::optional<doctor::Program> program;
  if (arguments.root == "/") {
    program = doctor::query_program();
    std::error_code error;
    const fs::space_info space = fs::space(".", error);
    if (!error) machine.free_disk_bytes = static_cast<int64_t>(space.available);
  }
  const doctor::Program* this_program = program ? &*program : nullptr;
  std::vector<doctor::Finding> findings = doctor::examine(machine, this_program);
  findings.insert(findings.end(), deep.findings.begin(), deep.findings.end());
  say("{}", arguments.json ? doctor::to_json(machine, this_program, findings)
                           : doctor::to_text(machine, this_program, findings));
  exit_code() = doctor::exit_status(findings);
  if (!arguments.deep) return;
  write_file_atomically(arguments.out, doctor::to_page(machine, this_program, findings, deep));
  if (!arguments.json) say("wrote {}; attach it to bug reports\n", arguments.out);
}

}  // namespace

void add_doctor(CLI::App& app) {
  const auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* verb = app.add_subcommand("doctor",
                                      "Check GPUs, drivers and system settings, and print commands that fix "
                                      "problems (exit code 1: warnings, 2: errors)");
  verb->add_option("--root", arguments->root,
                   "Check another machine by copies of its files in this folder (sys, proc, dev, etc)");
  add_json(*verb, arguments->json);
  verb->add_flag("--deep", arguments->deep, "Also test every GPU for some minutes and write an HTML report");
  verb->add_option("--device", arguments->tests.device,
                   "With --deep: GPUs to test, gpu (default) or emulated");
  verb->add_option("--memory-seconds", arguments->tests.memory_seconds,
                   "With --deep: max duration of the memory test of a GPU in seconds (default 240)");
  verb->add_option("--load-seconds", arguments->tests.load_seconds,
                   "With --deep: duration of the load test of a GPU in seconds (default 120)");
  verb->add_option("--kernels", arguments->tests.max_kernels,
                   "With --deep: max number of kernel tests (default: all)");
  verb->add_option("--memory", arguments->memory,
                   "With --deep: max amount of memory to test on a GPU, e.g. 8GiB (default: all)");
  verb->add_option("--out", arguments->out, "With --deep: file of the HTML report (default doctor.html)");
  set_example(*verb, "hearth doctor");
  verb->callback([=] {
    if (!arguments->memory.empty()) arguments->tests.max_memory_bytes = bytes_of(arguments->memory);
    run_doctor(*arguments);
  });
}

}  // namespace hearth::cli
