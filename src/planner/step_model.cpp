#include "planner/step_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/plan_builder.h"

namespace hearth::planner {

double StepModel::mfu() const {
  return (roofline.flops - recomputed_flops) /
         (roofline.seconds * cost::peak_flops_per_second(*gpu, precision, matmul_precision));
}

UpdateSize update_size(const engine::Plan& plan) {
  // Distinguishes images and text by the inputs: images are f32 [N, H, W, C], or latents with at most one i32
  // label per row; text has one i32 id per token.
  const int64_t accumulate = plan.options.accumulate;
  int64_t num_ids = 0;
  for (const ir::Value& value : plan.train_program().graph.values) {
    if (value.role != ir::Role::input) continue;
    const Shape& shape = value.type.shape;
    if (value.type.dtype == DType::f32 && shape.rank() == 4) return {.num_samples = shape[0] * accumulate};
    if (value.type.dtype == DType::i32) num_ids = std::max(num_ids, shape.num_elements());
  }
  if (num_ids <= plan.options.batch) return {.num_samples = plan.options.batch * accumulate};
  return {.num_samples = num_ids * accumulate, .is_text = true};
}

StepModel model_step(engine::EngineOptions options, const cost::Device& gpu) {
  options.backend = exec::Backend::null;
  options.device = gpu;
  const engine::Plan plan = engine::measure_plan(options, std::span(&options.batch, 1), {});
  const auto num_micro = static_cast<int>(options.accumulate / options.num_workers);
  const ir::Graph& graph = plan.train_program().graph;
  StepModel model{.gpu = &gpu,
                  .precision = options.precision,
                  .matmul_precision = options.matmul_precision,
                  .memory_bytes = plan.gpu_bytes(),
                  .recomputed_flops = num_micro * plan.recompute.extra_flops};
  model.roofline.add(cost::make_roofline(graph, gpu), 1);
  if (const exec::Program* before = plan.accumulate_program())
    model.roofline.add(cost::make_roofline(before->graph, gpu), num_micro - 1);
  const UpdateSize size = update_size(plan);
  model.is_text = size.is_text;
  model.num_samples = size.num_samples;
  return model;
}

std::string to_table(const StepModel& model) {
  const cost::Roofline& all = model.roofline;
  std::string text = fmt::format("on {}: a model, not a measurement\n", model.gpu->full_name);
  text += fmt::format("{:>10} {:>6} {:>6} {:>9} {:>10} {:>10}  op\n", "ms", "share", "count", "launches",
                      "GFLOP", "MB");
  const auto row = [&](const cost::RooflineRow& r) {
    return fmt::format("{:10.3f} {:5.1f}% {:6} {:9} {:10.3f} {:10.3f}  {}\n", r.seconds * 1e3,
                       100 * r.seconds / all.seconds, r.count, r.launches, r.flops / 1e9, r.bytes / 1e6,
                       r.op);
  };
  for (const cost::RooflineRow& r : all.rows) text += row(r);
  int count = 0;
  for (const cost::RooflineRow& r : all.rows) count += r.count;
  text += row({"in all", count, all.launches, all.flops, all.bytes, all.seconds});
  const char* const unit = model.is_text ? "tokens" : "images";
  const auto rate = [&](double seconds) { return static_cast<double>(model.num_samples) / seconds; };
  const auto mfu = [&](double seconds) { return 100 * model.mfu() * all.seconds / seconds; };
  const auto& [low, high] = all.expected;
  text += fmt::format("modeled: {:.3f} ms per step, {:.0f} {}/s, MFU {:.1f}%{}\n", all.seconds * 1e3,
                      model.samples_per_second(), unit, 100 * model.mfu(),
                      cost::peak_note(*model.gpu, model.matmul_precision));
  text +=
      fmt::format("expected: {:.1f} to {:.1f} ms per step, {:.0f} to {:.0f} {}/s, MFU {:.1f} to {:.1f}%\n",
                  low * 1e3, high * 1e3, rate(high), rate(low), unit, mfu(high), mfu(low));
  return text + fmt::format("sources: {}\n", model.gpu->sources);
}

}  // namespace hearth::planner
