#include "infer/evaluate.h"

#include <fmt/format.h>

#include <algorithm>

#include "hub/weights.h"
#include "planner/long_wait.h"

namespace hearth::infer {

tasks::Evaluation evaluate(engine::EngineOptions options, const tasks::Task& task, int64_t num_shown,
                           FunctionRef<void(engine::Engine&)> load) {
  options.row_lengths = task.row_lengths();
  const std::vector<int64_t> sizes = task.eval_sizes(options.batch);
  const auto engine = engine::evaluation_engine(std::move(options), sizes);
  load(*engine);
  return task.evaluate(*engine, num_shown);
}

tasks::Evaluation evaluate_text(engine::EngineOptions options, const tasks::Task& task,
                                const hub::ModelFolder& model, int64_t context,
                                FunctionRef<void(const std::string&)> print_note) {
  const std::vector<int64_t> lengths = task.row_lengths();
  const engine::BatchShape largest{.num_rows = task.eval_sizes(options.batch).front(),
                                   .row_length = lengths.empty() ? 0 : *std::ranges::max_element(lengths)};
  const auto num_batches = static_cast<double>((task.num_eval_rows() + options.batch - 1) / options.batch);
  return evaluate(std::move(options), task, 0, [&](engine::Engine& engine) {
    const std::string wait = planner::long_wait(
        fmt::format("evaluating {} rows of at most {} tokens", task.num_eval_rows(), context),
        num_batches * engine.plan().evaluation_seconds(largest));
    if (!wait.empty()) print_note(wait);
    hub::load_model(engine, model);
  });
}

}  // namespace hearth::infer
