#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "planner/scaling_model.h"

namespace hearth::cli {

/// Bandwidths of the links of a modeled machine, as given on the command line.
struct LinkArguments {
  /// Between a GPU and host memory, in GB/s per direction; 0: the value in the table of GPUs
  /// (cost/device.cpp).
  double gpu = 0;
  double memory = 0;   ///< of host memory, in GB/s; 0: default of the cost model
  double sums = 0;     ///< of an all-reduce, in GB/s; 0: default of the cost model
  double network = 0;  ///< between machines with one GPU each, in Gbit/s; 0: all GPUs are in one machine
};
/// Adds flags for these bandwidths to a command.
void add_links(CLI::App& verb, LinkArguments& arguments);
/// Converts the arguments to bytes per second.
planner::Links links_of(const LinkArguments& arguments);

}  // namespace hearth::cli
