#include "planner/gpu_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "engine/plan_builder.h"
#include "planner/memory_fit.h"

namespace hearth::planner {
namespace {

constexpr size_t kMaxOptions = 3;
/// Max number of times that the arena budget is lowered because the packed arena exceeded it.
constexpr int kMaxTries = 3;

/// Searches for the fastest settings with which a run fits a GPU.
class Search {
 public:
  Search(const engine::EngineOptions& options, std::span<const int64_t> train_sizes,
         std::span<const int64_t> eval_sizes, int64_t gpu_bytes)
      : options_(options), train_sizes_(train_sizes), eval_sizes_(eval_sizes), gpu_bytes_(gpu_bytes) {
    base_seconds_ = seconds_per_row(make(options_, false));
  }

  std::vector<FitOption> run() {
    add_smaller_batch();
    for (passes::OffloadOptions way : offload_choices()) {
      way.min_bytes = options_.offload.min_bytes;
      way.saved = options_.offload.saved;
      add_offload(way);
    }
    add_fp8();
    add_8bit();
    std::ranges::stable_sort(found_, {}, &FitOption::slowdown);
    // Removes an adjacent candidate with the same description: its additional settings have no effect.
    const auto same = [](const FitOption& a, const FitOption& b) { return a.what == b.what; };
    found_.erase(std::unique(found_.begin(), found_.end(), same), found_.end());
    if (found_.size() > kMaxOptions) found_.resize(kMaxOptions);
    return std::move(found_);
  }

 private:
  /// Plans all programs of a run. `packed`: true to pack the arena as for a run, false to only measure its
  /// lower bound.
  engine::Plan make(const engine::EngineOptions& options, bool packed) const {
    std::vector<int64_t> train_sizes(train_sizes_.begin(), train_sizes_.end());
    std::vector<int64_t> eval_sizes(eval_sizes_.begin(), eval_sizes_.end());
    for (std::vector<int64_t>* sizes : {&train_sizes, &eval_sizes}) {
      for (int64_t& size : *sizes) size = std::min(size, options.batch);
    }
    return packed ? engine::make_plan(options, train_sizes, eval_sizes)
                  : engine::measure_plan(options, train_sizes, eval_sizes);
  }
  bool fits(const engine::Plan& plan) const { return plan.gpu_bytes() <= gpu_bytes_; }
  /// True if the plan fits the GPU and its arena is within the arena budget, as a run requires.
  bool holds(const engine::Plan& plan) const {
    const int64_t budget = plan.options.budget_bytes;
    return fits(plan) && (budget == 0 || plan.arena_bytes <= budget);
  }
  static double seconds_per_row(const engine::Plan& plan) {
    return make_plan_report(plan).time.seconds / static_cast<double>(plan.options.batch);
  }
  void add(const engine::Plan& plan, std::string settings, std::string what) {
    found_.push_back({.settings = std::move(settings),
                      .what = std::move(what),
                      .slowdown = seconds_per_row(plan) / base_seconds_});
  }

  void add_smaller_batch() {
    for (int64_t parts = 2; parts <= options_.batch; ++parts) {
      if (options_.batch % parts != 0) continue;
      engine::EngineOptions options = options_;
      options.batch /= parts;
      options.accumulate *= parts;
      if (!measures(options)) continue;
      const engine::Plan plan = make(options, true);
      if (!fits(plan)) continue;
      return add(plan, fmt::format("train.batch={} train.accumulate={}", options.batch, options.accumulate),
                 "smaller micro-batches");
    }
  }

  /// True if the lower bound of the memory fits. False also if the model rejects the batch size.
  bool measures(const engine::EngineOptions& options) const {
    try {
      return fits(make(options, false));
    } catch (const UserError&) {
      return false;
    }
  }

  void add_offload(const passes::OffloadOptions& way) {
    engine::EngineOptions options = options_;
    options.offload = way;
    options.budget_bytes = 0;
    engine::Plan plan = make(options, true);
    // Limits the arena to the bytes that the plan's other memory leaves free.
    for (int i = 0; i < kMaxTries && !holds(plan); ++i) {
      const int64_t over = std::max<int64_t>(0, plan.gpu_bytes() - gpu_bytes_);
      const int64_t last_arena = over == 0 || i == 0 ? plan.arena_bytes : options.budget_bytes;
      options.budget_bytes = last_arena - over;
      if (options.budget_bytes <= 0) return;
      plan = make(options, true);
    }
    if (!holds(plan)) return;
    add(plan, settings_of(options), describe({.offload = way, .report = make_plan_report(plan)}));
  }

  /// Adds the plan with saved activations in fp8, with recompute if necessary.
  void add_fp8() {
    if (options_.offload.saved == SavedActivations::fp8 || options_.parallel == Parallel::pipeline) return;
    passes::OffloadOptions way = options_.offload;
    way.saved = SavedActivations::fp8;
    add_offload(way);
  }

  std::string settings_of(const engine::EngineOptions& options) const {
    std::vector<std::string> settings;
    if (options.offload.saved != options_.offload.saved)
      settings.push_back(fmt::format("saved_activations={}", name_of(options.offload.saved)));
    if (options.budget_bytes > 0) settings.push_back(fmt::format("memory={}", options.budget_bytes));
    if (options.offload.states) settings.emplace_back("offload.states=true");
    if (options.offload.weights) settings.emplace_back("offload.weights=true");
    if (options.offload.activations) settings.emplace_back("offload.activations=true");
    return fmt::format("{}", fmt::join(settings, " "));
  }

  void add_8bit() {
    if (options_.optimizer.name != std::string_view("adamw")) return;
    engine::EngineOptions options = options_;
    options.optimizer.name = "adamw8bit";
    const engine::Plan plan = make(options, true);
    if (fits(plan)) add(plan, "optimizer.name=adamw8bit", "8-bit moments");
  }

  engine::EngineOptions options_;
  std::span<const int64_t> train_sizes_, eval_sizes_;
  int64_t gpu_bytes_;
  double base_seconds_ = 0;
  std::vector<FitOption> found_;
};

}  // namespace

std::vector<FitOption> find_fit_options(const engine::EngineOptions& options,
                                        std::span<const int64_t> train_sizes,
                                        std::span<const int64_t> eval_sizes, int64_t gpu_bytes) {
  return Search(options, train_sizes, eval_sizes, gpu_bytes).run();
}

}  // namespace hearth::planner
