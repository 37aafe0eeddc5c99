#include "planner/plan_report.h"

#include <fmt/format.h>

#include "base/text.h"
#include "engine/plan_builder.h"

namespace hearth::planner {
namespace {

int64_t staging_bytes(const exec::Program& program) {
  int64_t total = 0;
  for (const ir::Value& value : program.graph.values) {
    if (value.role == ir::Role::input) total += 2 * value.type.num_bytes();
  }
  return total;
}

std::string row(std::string_view name, int64_t bytes) {
  return fmt::format("  {:<22}{:>14}\n", name, human_bytes(bytes));
}

}  // namespace

PlanReport make_plan_report(const engine::Plan& plan) {
  const engine::EngineOptions& options = plan.options;
  const exec::Program& program = plan.train_program();
  const exec::PersistentLayout& layout = *plan.layout;
  PlanReport report{.batch = options.batch,
                    .weight_bytes = layout.device_bytes_of(ir::Role::parameter),
                    .frozen_bytes = layout.device_bytes_of(ir::Role::frozen)};
  for (const ir::Role role : {ir::Role::parameter, ir::Role::state, ir::Role::carried, ir::Role::frozen})
    report.host_bytes += layout.host_bytes_of(role);
  for (const exec::PersistentBuffer& buffer : layout.buffers()) {
    if (buffer.role == ir::Role::parameter) report.num_parameters += buffer.type.shape.num_elements();
  }
  report.optimizer_bytes = layout.device_bytes_of(ir::Role::state);
  report.gradient_bytes = layout.device_bytes_of(ir::Role::carried) + program.report.gradient_bytes;
  report.activation_bytes = program.report.activation_bytes;
  report.workspace_bytes = program.report.workspace_bytes;
  report.staging_bytes = staging_bytes(program);
  report.arena_bytes = plan.arena_bytes;
  report.bound_bytes = program.report.bound_bytes;
  report.peak_bytes = layout.device_bytes() + report.arena_bytes + report.staging_bytes;
  report.host_bytes += plan.host_arena_bytes;
  report.flops_per_step = plan.flops_per_update;
  report.encoded = plan.encoded;
  report.recompute = plan.recompute;
  report.time = cost::simulate(program.graph, options.device);
  return report;
}

PlanReport make_plan_report(const engine::EngineOptions& options) {
  return make_plan_report(engine::make_plan(options, std::span(&options.batch, 1), {}));
}

std::string describe(const passes::EncodeResult& encoded) {
  if (encoded.num_encoded == 0) return "";
  return fmt::format(
      "{} saved activations of {} in fp8: {} as {} of codes, {} recomputed from these; {:.3f} s (modeled); "
      "rounding error at most 1/16 of an element",
      encoded.num_encoded + encoded.num_recomputed, human_bytes(encoded.full_bytes), encoded.num_encoded,
      human_bytes(encoded.encoded_bytes), encoded.num_recomputed, encoded.seconds);
}

std::string to_table(const PlanReport& report) {
  std::string text = fmt::format("  {:<22}{:>14}\n", "parameters", report.num_parameters);
  if (report.frozen_bytes > 0) text += row("frozen weights", report.frozen_bytes);
  text += row("weights", report.weight_bytes) + row("optimizer and state", report.optimizer_bytes);
  text += row("gradients", report.gradient_bytes) + row("activations", report.activation_bytes);
  text += row("workspace", report.workspace_bytes) + row("staging", report.staging_bytes);
  text += row("arena (packed)", report.arena_bytes) + row("arena lower bound", report.bound_bytes);
  text += fmt::format("  {:<22}{:>13.2f}%\n", "gap", 100 * report.gap());
  text += row("peak", report.peak_bytes);
  if (report.host_bytes > 0) text += row("in host memory", report.host_bytes);
  if (report.kept_bytes > 0) text += row("image cache, at most", report.kept_bytes);
  text += fmt::format("  {:<22}{:>14.3f} GFLOP\n", "work per step", report.flops_per_step / 1e9);
  if (report.encoded.num_encoded > 0) text += fmt::format("  {}\n", describe(report.encoded));
  return text;
}

std::string to_json(const PlanReport& report) {
  return fmt::format(
      "{{\"batch\":{},\"parameters\":{},\"weight_bytes\":{},\"frozen_bytes\":{},\"optimizer_bytes\":{},"
      "\"gradient_bytes\":{},"
      "\"activation_bytes\":{},\"workspace_bytes\":{},\"staging_bytes\":{},\"arena_bytes\":{},\"bound_"
      "bytes\":{},"
      "\"gap\":{:.6f},\"peak_bytes\":{},\"host_bytes\":{},\"kept_bytes\":{},\"flops_per_step\":{:.0f},"
      "\"recomputed_values\":{},\"offloaded_values\":{},\"fp8_values\":{},\"fp8_recomputed\":{},\"fp8_full_"
      "bytes\":{},\"fp8_bytes\":{},\"fp8_seconds\":{:.6f}}"
      "}",
      report.batch, report.num_parameters, report.weight_bytes, report.frozen_bytes, report.optimizer_bytes,
      report.gradient_bytes, report.activation_bytes, report.workspace_bytes, report.staging_bytes,
      report.arena_bytes, report.bound_bytes, report.gap(), report.peak_bytes, report.host_bytes,
      report.kept_bytes, report.flops_per_step, report.recompute.num_recomputed, report.recompute.num_stashed,
      report.encoded.num_encoded, report.encoded.num_recomputed, report.encoded.full_bytes,
      report.encoded.encoded_bytes, report.encoded.seconds);
}

}  // namespace hearth::planner
