#include "base/error.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "doctor/topology.h"

namespace hearth::cli {
namespace {

struct TopologyArguments {
  std::string root = "/";
  bool json = false, measure = false;
};

void run_topology(const TopologyArguments& arguments) {
  std::error_code error;
  if (!fs::is_directory(arguments.root, error))
    user_error("expected a folder for --root, got '{}'", arguments.root);
  if (arguments.measure && arguments.root != "/")
    user_error("--measure cannot be combined with --root '{}': another machine cannot be measured",
               arguments.root);
  system::Tree tree(arguments.root);
  const system::Machine machine = system::read_machine(tree);
  doctor::Topology topology = doctor::topology_of(machine);
  if (arguments.measure && !topology.gpus.empty()) {
    const std::string fault = doctor::measure_topology(topology, "gpu");
    if (!fault.empty()) user_error("copies could not be measured: {}", fault);
  }
  say("{}", arguments.json ? doctor::to_json(topology) : doctor::to_text(machine, topology));
}

}  // namespace

void add_topology(CLI::App& app) {
  const auto arguments = std::make_shared<TopologyArguments>();
  CLI::App* verb = app.add_subcommand(
      "topology", "Show how the GPUs are connected, and the best way to share a run between them");
  verb->add_flag("--measure", arguments->measure,
                 "Measure copies of each GPU separately and of all GPUs at the same time");
  verb->add_option("--root", arguments->root,
                   "Read copies of another machine's files in this folder (sys, proc, dev, etc)");
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth topology");
  verb->callback([=] { run_topology(*arguments); });
}

}  // namespace hearth::cli
