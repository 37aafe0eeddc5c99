#include "cli/links.h"

namespace hearth::cli {
namespace {

constexpr double kMostRate = 1e6;

void add_rate(CLI::App& verb, const std::string& flag, double& rate, const char* text) {
  verb.add_option(flag, rate, text)->check(CLI::Range(1e-6, kMostRate));
}

}  // namespace

void add_links(CLI::App& verb, LinkArguments& arguments) {
  add_rate(verb, "--link", arguments.gpu,
           "GB/s each way between a GPU and host memory, for example 24, or 6.5 in a slot of 4 lanes");
  add_rate(verb, "--host-memory", arguments.memory, "GB/s that host memory reads and writes (60, assumed)");
  add_rate(verb, "--sums", arguments.sums, "GB/s of all_reduce by hearth bench comm (9)");
  add_rate(verb, "--network", arguments.network, "a GPU in each machine, and Gb/s between them");
}

planner::Links links_of(const LinkArguments& arguments) {
  planner::Links links{.gpu = arguments.gpu * 1e9,
                       .network = planner::network_bytes_per_second(arguments.network * 1e9)};
  if (arguments.memory > 0) links.memory = arguments.memory * 1e9;
  if (arguments.sums > 0) links.sums = arguments.sums * 1e9;
  return links;
}

}  // namespace hearth::cli
