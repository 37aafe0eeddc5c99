#include "tasks/widths.h"

#include <charconv>

#include "tasks/task_def.h"

namespace hearth::tasks {
namespace {

/// Objective whose model has fewer channels than the model that it is built from.
class NarrowObjective : public engine::Objective {
 public:
  NarrowObjective(std::shared_ptr<const engine::Objective> full, std::vector<nn::Width> widths)
      : full_(std::move(full)), widths_(std::move(widths)) {}

  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    Graph made = full_->build(builder, shape);
    builder.narrow(widths_);
    return made;
  }

 private:
  std::shared_ptr<const engine::Objective> full_;
  std::vector<nn::Width> widths_;
};

}  // namespace

std::vector<nn::Width> widths_of(const recipe::Recipe& recipe) {
  std::vector<nn::Width> widths;
  for (const std::string& text : recipe.model.widths) {
    const size_t equals = text.rfind('=');  // Entries have been checked with the recipe.
    nn::Width width{.layer = text.substr(0, equals)};
    std::from_chars(text.data() + equals + 1, text.data() + text.size(), width.channels);
    widths.push_back(std::move(width));
  }
  return widths;
}

std::shared_ptr<const engine::Objective> objective_of(const Job& job) {
  auto full = task_of(job.recipe).objective(job);
  if (job.recipe.model.widths.empty()) return full;
  return std::make_shared<NarrowObjective>(std::move(full), widths_of(job.recipe));
}

}  // namespace hearth::tasks
