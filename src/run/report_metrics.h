#pragma once

#include <string_view>

#include "base/function_ref.h"
#include "run/run_sink.h"

namespace hearth::run {

/// Call add(name, value) for each metric of a report. The names are those of TensorBoard: "train/loss",
/// "eval/accuracy", "gpu0/power_w".
void for_each_metric(const StepReport& report, FunctionRef<void(std::string_view, double)> add);
void for_each_metric(const EvaluationReport& report, FunctionRef<void(std::string_view, double)> add);

}  // namespace hearth::run
