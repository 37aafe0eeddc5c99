#include "run/calibrate.h"

#include <algorithm>

#include "base/error.h"
#include "hub/weights.h"
#include "infer/activation_histogram.h"
#include "nn/int8.h"
#include "run/from_recipe.h"
#include "run/resolve.h"
#include "tasks/task_def.h"
#include "tasks/widths.h"

namespace hearth::run {
namespace {

/// Max bytes of the activations of a micro-batch, unless one image has more.
constexpr int64_t kMaxBytes = int64_t{256} << 20;

/// An objective without losses, whose outputs are the activations to round, except its input.
class Observed : public engine::Objective {
 public:
  explicit Observed(std::shared_ptr<const Objective> objective) : objective_(std::move(objective)) {}

  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    Graph made{.inputs = {objective_->build(builder, shape).inputs[0]}};
    for (const nn::RoundedActivation& activation : nn::activations_to_round(builder))
      if (activation.value != made.inputs[0]) made.outputs.push_back(activation.value);
    return made;
  }

 private:
  std::shared_ptr<const Objective> objective_;
};

/// Activations of one row: names of their ranges and numbers of elements.
struct Observation {
  std::string range;
  int64_t num_elements = 0;
  bool is_input = false;
};
std::vector<Observation> observations_of(const engine::Objective& objective) {
  ir::Graph graph;
  nn::Builder builder(graph, nn::Builder::Mode::eval, 0);
  const ir::ValueId input = objective.build(builder, {.num_rows = 1}).inputs[0];
  std::vector<Observation> found;
  for (const nn::RoundedActivation& activation : nn::activations_to_round(builder))
    found.push_back({.range = activation.range,
                     .num_elements = graph.type(activation.value).shape.num_elements(),
                     .is_input = activation.value == input});
  return found;
}

int64_t rows_that_fit(const std::vector<Observation>& observations) {
  int64_t bytes = 1;
  for (const Observation& one : observations) bytes += one.num_elements * int64_t{sizeof(float)};
  return std::max<int64_t>(1, kMaxBytes / bytes);
}

/// Evaluates a micro-batch and adds the activations of its first `num_rows` rows to the histograms.
void observe(engine::Engine& engine, const engine::MicroBatch& batch, int64_t num_rows,
             const std::vector<Observation>& observations,
             std::vector<infer::ActivationHistogram>& histograms) {
  const auto* images = batch.array<float>("images");
  engine.evaluate({{{"images", images}}, batch.num_rows});
  size_t output = 0;
  for (size_t i = 0; i < observations.size(); ++i) {
    const float* values = observations[i].is_input ? images : engine.output(output++).data();
    histograms[i].add({values, static_cast<size_t>(num_rows * observations[i].num_elements)});
  }
}

}  // namespace

std::map<std::string, nn::ActivationRange> calibrate(recipe::Recipe recipe, const fs::path& run,
                                                     int64_t num_images, RangeChoice choice) {
  recipe.device = recipe::kCpu;
  recipe.precision = DType::f32;
  recipe.distill = {};
  tasks::Job job = resolve(tasks::Job(std::move(recipe)), run).job;
  const tasks::TaskDef& task_def = tasks::task_of(job.recipe);
  const std::vector<Observation> observations = observations_of(*tasks::objective_of(job));
  job.recipe.train.batch = std::min(job.recipe.train.batch, rows_that_fit(observations));
  const auto task = task_def.open(job, 0);
  const auto stream = task->open_held_out();
  if (stream == nullptr)
    user_error("'{}' is not a run of an image model, so it has no images for --type int8", run.string());

  engine::EngineOptions options = engine_options(job);
  options.objective = std::make_shared<Observed>(options.objective);
  const int64_t num_rows = std::min(num_images, task->num_eval_rows());
  const std::vector<int64_t> sizes = tasks::batch_sizes(task->num_eval_rows(), job.recipe.train.batch);
  const auto engine = engine::evaluation_engine(std::move(options), sizes);
  engine->initialize();
  hub::load_weights(*engine, hub::run_weights(run, false));
  std::vector<infer::ActivationHistogram> histograms(observations.size());
  for (int64_t done = 0; done < num_rows;) {
    const engine::MicroBatch batch = stream->next();
    const int64_t count = std::min(batch.num_rows, num_rows - done);
    observe(*engine, batch, count, observations, histograms);
    done += count;
  }
  std::map<std::string, nn::ActivationRange> ranges;
  for (size_t i = 0; i < observations.size(); ++i)
    ranges[observations[i].range] =
        choice == RangeChoice::min_max ? histograms[i].min_max() : histograms[i].best_range();
  return ranges;
}

}  // namespace hearth::run
