#include "cli/links.h"

namespace hearth::cli {
namespace {

constexpr double kMaxRate = 1e6;

void add_rate(CLI::App& verb, const std::string& flag, double& rate, const char* text) {
  verb.add_option(flag, rate, text)->check(CLI::Range(1e-6, kMaxRate));
}

}  // namespace

void add_links(CLI::App& verb, LinkArguments& arguments) {
  add_rate(verb, "--link", arguments.gpu,
           "Bandwidth between a GPU and host memory in GB/s per direction, e.g. 24, or 6.5 in a slot with 4 "
           "lanes (default: from the table of GPUs)");
  add_rate(verb, "--host-memory", arguments.memory, "Bandwidth of host memory in GB/s (default 60)");
  add_rate(verb, "--sums", arguments.sums,
           "Bandwidth of all-reduce in GB/s, as measured by hearth bench comm (default 9)");
  add_rate(
      verb, "--network", arguments.network,
      "Network bandwidth in Gbit/s between machines with one GPU each (default: all GPUs in one machine)");
}

planner::Links links_of(const LinkArguments& arguments) {
  planner::Links links{.gpu = arguments.gpu * 1e9,
                       .network = planner::network_bytes_per_second(arguments.network * 1e9)};
  if (arguments.memory > 0) links.memory = arguments.memory * 1e9;
  if (arguments.sums > 0) links.sums = arguments.sums * 1e9;
  return links;
}

}  // namespace hearth::cli
