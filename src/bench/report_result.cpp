#include "bench/report_result.h"

namespace hearth::bench {
namespace {

using run::Progress;

/// Range of indices [first, end) of the pretraining steps over which AMD's benchmark averages.
constexpr int64_t kFirstCounted = 30, kEndCounted = 40;

}  // namespace

int64_t ReportResult::samples_per_step() const {
  return fit.bench.batch * (job.is_text ? fit.bench.length : 1);
}

std::string_view ReportResult::precision() const {
  if (job.requested.matmul_precision != MatmulPrecision::same) return "FP8";
  return job.requested.precision == DType::f32 ? "FP32" : "BF16";
}

double ReportResult::step_seconds() const {
  return static_cast<double>(samples_per_step()) / mean(&Progress::samples_per_second);
}

double ReportResult::mean(double Progress::*value) const {
  const int64_t count = std::ssize(steps);
  const bool as_published = !job.is_finetuning() && count >= kEndCounted;
  const int64_t first = as_published ? kFirstCounted : count / 2, end = as_published ? kEndCounted : count;
  double sum = 0;
  for (int64_t i = first; i < end; ++i) sum += steps[static_cast<size_t>(i)].*value;
  return sum / static_cast<double>(end - first);
}

}  // namespace hearth::bench
