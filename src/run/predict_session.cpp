#include "run/predict_session.h"

#include "base/run_files.h"
#include "hub/weights.h"
#include "run/from_recipe.h"
#include "tasks/task_def.h"

namespace hearth::run {

PredictSession::PredictSession(const recipe::Recipe& recipe, const fs::path& run, fs::path out)
    : weights_(hub::run_weights(run, false)) {
  if (out.empty()) {
    out = run / "predictions";
    refuse_link(out);
  }
  predictor_ =
      tasks::image_task_of(recipe, run).predictor(recipe, {.run = run, .out = out, .weights = weights_});
  recipe::Recipe alone = recipe;
  alone.distill = {};
  options_ = engine_options(tasks::Job(std::move(alone)));
}

/// Returns the engine with the weights; loads them the first time.
engine::Engine& PredictSession::engine() {
  if (engine_) return *engine_;
  const int64_t one[] = {1};
  auto engine = engine::evaluation_engine(options_, one);
  engine->initialize();
  hub::load_weights(*engine, weights_);
  engine_ = std::move(engine);
  return *engine_;
}

std::string PredictSession::predict(const fs::path& image) { return predictor_->predict(engine(), image); }

}  // namespace hearth::run
