#pragma once

#include "cli/verb.h"

namespace hearth::cli {

/// Adds `report` to `hearth bench`.
void add_bench_report(CLI::App& bench);

}  // namespace hearth::cli
