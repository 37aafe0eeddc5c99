#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "planner/scaling_model.h"

namespace hearth::cli {

/// What a user says of the links between GPUs.
struct LinkArguments {
  double gpu = 0;      ///< GB/s each way; 0: the GPU model's
  double memory = 0;   ///< GB/s; 0: as assumed
  double sums = 0;     ///< GB/s; 0: as measured
  double network = 0;  ///< Gb/s; 0: one machine
};
void add_links(CLI::App& verb, LinkArguments& arguments);
/// UserError for what is no rate.
planner::Links links_of(const LinkArguments& arguments);

}  // namespace hearth::cli
