#include "cli/links.h"

#include "base/error.h"

namespace hearth::cli {
namespace {

constexpr double kMostRate = 1e6;

void check_rate(const char* flag, double rate, const char* example) {
  // Not a number is not within it either.
  if (!(rate >= 0 && rate <= kMostRate))
    user_error("expected a rate like {} for {}, got {}", example, flag, rate);
}

}  // namespace

void add_links(CLI::App& verb, LinkArguments& arguments) {
  verb.add_option(
      "--link", arguments.card,
      "GB/s each way between a card and host memory, for example 24, or 6.5 in a slot of 4 lanes");
  verb.add_option("--host-memory", arguments.memory, "GB/s that host memory reads and writes (60, assumed)");
  verb.add_option("--sums", arguments.sums, "GB/s of all_reduce by hearth bench comm (9)");
  verb.add_option("--network", arguments.network, "a card in each machine, and Gb/s between them");
}

train::Links links_of(const LinkArguments& arguments) {
  check_rate("--link", arguments.card, "24");
  check_rate("--host-memory", arguments.memory, "60");
  check_rate("--sums", arguments.sums, "9");
  check_rate("--network", arguments.network, "1");
  train::Links links{.card = arguments.card * 1e9,
                     .network = train::network_bytes_per_second(arguments.network * 1e9)};
  if (arguments.memory > 0) links.memory = arguments.memory * 1e9;
  if (arguments.sums > 0) links.sums = arguments.sums * 1e9;
  return links;
}

}  // namespace hearth::cli
