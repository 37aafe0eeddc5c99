#include "train/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace hearth::train {
namespace {

int64_t staging_bytes(const exec::Program& program) {
  int64_t total = 0;
  for (const ir::Value& value : program.graph().values) {
    if (value.role == ir::Role::input) total += 2 * value.type.num_bytes();
  }
  return total;
}

EngineOptions with_batch(const EngineOptions& options, int64_t batch) {
  EngineOptions changed = options;
  changed.batch = batch;
  return changed;
}

std::string row(std::string_view name, int64_t bytes) {
  return fmt::format("  {:<22}{:>14}\n", name, human_bytes(bytes));
}

/// Batch norm over a single row has no variance, so some models start at a batch of 2.
PlanReport smallest_batch(const EngineOptions& options) {
  try {
    return make_plan_report(with_batch(options, 1));
  } catch (const UserError&) {
    return make_plan_report(with_batch(options, 2));
  }
}

}  // namespace

PlanReport make_plan_report(const EngineOptions& options, std::unique_ptr<Engine>* engine) {
  const int64_t sizes[] = {options.batch};
  auto compiled = std::make_unique<Engine>(options, sizes, std::span<const int64_t>{});
  const exec::Program& program = compiled->train_program();
  const exec::PersistentLayout& layout = compiled->layout();
  PlanReport report{.batch = options.batch,
                    .weight_bytes = layout.bytes_of(ir::Role::parameter),
                    .frozen_bytes = layout.frozen_bytes()};
  for (const exec::PersistentBuffer& buffer : layout.buffers()) {
    if (buffer.name.starts_with("grad/"))
      report.gradient_bytes += passes::padded_bytes(buffer.type.num_bytes());
    if (buffer.role == ir::Role::parameter) report.num_parameters += buffer.type.shape.num_elements();
  }
  report.optimiser_bytes = layout.bytes_of(ir::Role::state) - report.gradient_bytes;
  report.gradient_bytes += program.report().gradient_bytes;
  report.activation_bytes = program.report().activation_bytes;
  report.workspace_bytes = program.report().workspace_bytes;
  report.staging_bytes = staging_bytes(program);
  report.arena_bytes = compiled->arena_bytes();
  report.bound_bytes = program.report().bound_bytes;
  report.peak_bytes = layout.num_bytes() + report.arena_bytes + report.staging_bytes;
  report.flops_per_step = program.report().flops * static_cast<double>(options.accumulate);
  report.recompute = compiled->recompute();
  if (engine != nullptr) *engine = std::move(compiled);
  return report;
}

std::optional<PlanReport> largest_batch(const EngineOptions& options, int64_t memory_bytes) {
  // The peak is nearly affine in the batch, so each probe lands close; the last ones settle it.
  PlanReport low = smallest_batch(options);
  if (low.peak_bytes > memory_bytes) return std::nullopt;
  PlanReport probe = make_plan_report(with_batch(options, 8));
  int64_t too_large = probe.peak_bytes > memory_bytes ? probe.batch : 0;
  const PlanReport* base = &low;
  PlanReport best = too_large != 0 ? low : probe;
  for (int round = 0; round < 12; ++round) {
    if (too_large != 0 && best.batch + 1 >= too_large) break;
    const double slope = static_cast<double>(probe.peak_bytes - base->peak_bytes) /
                         std::max<double>(1, static_cast<double>(probe.batch - base->batch));
    auto guess =
        best.batch + static_cast<int64_t>(static_cast<double>(memory_bytes - best.peak_bytes) / slope);
    guess = std::max(guess, best.batch + 1);
    if (too_large != 0) guess = std::min(guess, too_large - 1);
    guess = std::min<int64_t>(guess, 1 << 20);
    if (guess <= best.batch) break;
    const PlanReport next = make_plan_report(with_batch(options, guess));
    if (next.peak_bytes > memory_bytes) {
      too_large = guess;
    } else {
      best = next;
    }
    probe = next;
  }
  return best;
}

std::vector<RecomputeOffer> recompute_offers(EngineOptions options) {
  std::vector<RecomputeOffer> offers;
  options.budget_bytes = 0;
  const PlanReport free = make_plan_report(options);
  for (const double share : {0.75, 0.5, 0.25}) {
    options.budget_bytes = static_cast<int64_t>(static_cast<double>(free.arena_bytes) * share);
    RecomputeOffer offer{.budget_share = share, .report = make_plan_report(options)};
    offer.extra_flops_share = offer.report.flops_per_step / std::max(1.0, free.flops_per_step) - 1;
    offers.push_back(offer);
    if (!offers.back().report.recompute.fits) break;
  }
  return offers;
}

std::string to_table(const PlanReport& report) {
  std::string text = fmt::format("  {:<22}{:>14}\n", "parameters", report.num_parameters);
  if (report.frozen_bytes > 0) text += row("frozen weights", report.frozen_bytes);
  text += row("weights", report.weight_bytes) + row("optimiser and state", report.optimiser_bytes);
  text += row("gradients", report.gradient_bytes) + row("activations", report.activation_bytes);
  text += row("workspace", report.workspace_bytes) + row("staging", report.staging_bytes);
  text += row("arena (packed)", report.arena_bytes) + row("arena lower bound", report.bound_bytes);
  text += fmt::format("  {:<22}{:>13.2f}%\n", "gap", 100 * report.gap());
  text += row("peak", report.peak_bytes);
  text += fmt::format("  {:<22}{:>14.3f} GFLOP\n", "work per step", report.flops_per_step / 1e9);
  return text;
}

std::string to_json(const PlanReport& report) {
  return fmt::format(
      "{{\"batch\":{},\"parameters\":{},\"weight_bytes\":{},\"frozen_bytes\":{},\"optimiser_bytes\":{},"
      "\"gradient_bytes\":{},"
      "\"activation_bytes\":{},\"workspace_bytes\":{},\"staging_bytes\":{},\"arena_bytes\":{},\"bound_"
      "bytes\":{},"
      "\"gap\":{:.6f},\"peak_bytes\":{},\"flops_per_step\":{:.0f}}}",
      report.batch, report.num_parameters, report.weight_bytes, report.frozen_bytes, report.optimiser_bytes,
      report.gradient_bytes, report.activation_bytes, report.workspace_bytes, report.staging_bytes,
      report.arena_bytes, report.bound_bytes, report.gap(), report.peak_bytes, report.flops_per_step);
}

}  // namespace hearth::train
