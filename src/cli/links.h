#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "planner/scaling_model.h"

namespace hearth::cli {

/// Bandwidths of the links between GPUs, as given by the user.
struct LinkArguments {
  double gpu = 0;      ///< GPU to host in GB/s, per direction; 0: from the table of GPUs
  double memory = 0;   ///< host memory in GB/s; 0: default of the cost model
  double sums = 0;     ///< all-reduce in GB/s; 0: default of the cost model
  double network = 0;  ///< network in Gbit/s, with one GPU per machine; 0: one machine
};
/// Adds the flags of the arguments to a command.
void add_links(CLI::App& verb, LinkArguments& arguments);
/// Converts the arguments to bytes per second.
planner::Links links_of(const LinkArguments& arguments);

}  // namespace hearth::cli
