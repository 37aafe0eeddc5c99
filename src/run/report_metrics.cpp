#include "run/report_metrics.h"

#include <fmt/format.h>

#include <cmath>

#include "run/gpu_readings.h"

namespace hearth::run {

void for_each_metric(const StepReport& report, FunctionRef<void(std::string_view, double)> add) {
  add("train/loss", report.loss);
  add("train/learning_rate", report.learning_rate);
  add("train/grad_norm", report.grad_norm);
  if (report.gpus == nullptr) return;
  for (size_t i = 0; i < report.gpus->num_gpus; ++i) {
    for (const auto& [name, value] : kGpuQuantities) {
      const float number = report.gpus->readings[i].*value;
      if (std::isfinite(number)) add(fmt::format("gpu{}/{}", i, name), number);
    }
  }
  add("gpu/idle_share", report.gpus->idle_share);
}

void for_each_metric(const EvaluationReport& report, FunctionRef<void(std::string_view, double)> add) {
  add("eval/loss", report.loss);
  for (const auto& [name, value] : report.metrics) add(fmt::format("eval/{}", name), value);
}

}  // namespace hearth::run
