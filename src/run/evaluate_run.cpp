#include "run/evaluate_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/run_files.h"
#include "hub/weights.h"
#include "infer/evaluate.h"
#include "run/device_rates.h"
#include "run/first_weights.h"
#include "run/from_recipe.h"
#include "run/resolve.h"
#include "tasks/predictor.h"
#include "tasks/stratified_indices.h"
#include "tasks/task_def.h"

namespace hearth::run {
namespace {

/// Loads the base model of an adapter, if any, then the weights of the run; returns the path of the run's
/// weights.
fs::path load_run(engine::Engine& engine, const recipe::Recipe& recipe, const fs::path& run) {
  engine.initialize();
  load_frozen_weights(engine, recipe);
  fs::path weights = hub::run_weights(run, hub::has_adapter(engine));
  hub::load_weights(engine, weights);
  return weights;
}

WeightsEvaluation checked(const tasks::Task& task, const tasks::Evaluation& found, fs::path weights) {
  tasks::check_finite(found.loss, weights);
  return {.weights = std::move(weights),
          .loss = found.loss,
          .metrics = {found.metrics.begin(), found.metrics.end()},
          .text = task.evaluation_text(found),
          .num_rows = task.num_eval_rows()};
}

/// Writes an HTML report of an evaluation, with the score curve of the run's log.
void write_report(const fs::path& path, const recipe::Recipe& recipe, const tasks::Task& task,
                  const tasks::Evaluation& found, const WeightsEvaluation& result, const fs::path& run) {
  io::ReportData data{
      .title = fmt::format("{}: {}", result.weights.string(), recipe::model_name(recipe)),
      .subtitle = recipe.data.path.empty() ? recipe.data.kind : recipe.data.path.string(),
      .summary = {{"result", result.text}, {"validation loss", fmt::format("{:.4f}", result.loss)}}};
  task.report(found, run / kLogFile, data);
  write_file_atomically(path, io::make_report(data));
}

}  // namespace

WeightsEvaluation evaluate_run(recipe::Recipe given, const fs::path& run, const PrintNote& print_note,
                               const fs::path& report) {
  given.distill = {};
  tasks::Job job = resolve(tasks::Job(std::move(given)), run).job;
  const recipe::Recipe& recipe = job.recipe;
  const auto task = tasks::task_of(recipe).open(job, 0);
  take_class_names(job.recipe, *task);
  engine::EngineOptions options = engine_options(job);
  if (const std::string note = set_device_rates(options); !note.empty()) print_note(note);
  // Prepares the data (latents, text embeddings) before the engine is created, while all memory of the GPU is
  // free.
  if (!task->is_prepared()) task->prepare(print_note);
  fs::path weights;
  const tasks::Evaluation found = infer::evaluate(
      std::move(options), *task, report.empty() ? 0 : tasks::kMaxSamples, [&](engine::Engine& engine) {
        weights = load_run(engine, recipe, run);
        task->resume(run);
      });
  WeightsEvaluation result = checked(*task, found, std::move(weights));
  if (!report.empty()) write_report(report, recipe, *task, found, result, run);
  return result;
}

WeightsEvaluation evaluate_model(recipe::Recipe recipe, const hub::ModelFolder& model,
                                 const PrintNote& print_note) {
  hub::check_weights(model);
  recipe.distill = {};
  const tasks::Job job(recipe);
  const auto task = tasks::task_of(recipe).open(job, 0);
  if (const std::string warning = task->warning(); !warning.empty()) print_note(warning);
  engine::EngineOptions options = engine_options(job);
  set_device_rates(options);
  const tasks::Evaluation found =
      infer::evaluate_text(std::move(options), *task, model, recipe.data.context, print_note);
  return checked(*task, found, model.named_weights());
}

}  // namespace hearth::run
