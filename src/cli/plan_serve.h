#pragma once

#include <CLI/CLI.hpp>

namespace hearth::cli {

/// Adds `hearth plan serve MODEL`, a command of `hearth plan`, and returns it.
CLI::App* add_plan_serve(CLI::App& plan);

}  // namespace hearth::cli
