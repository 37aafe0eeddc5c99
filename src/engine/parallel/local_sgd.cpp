// Local steps (engine/local_steps.h): each worker updates its copy of the weights with its share of the
// micro-batches, with the same programs as a single worker. After every LocalStepsOptions::steps updates,
// Plan::outer makes an outer step of all workers.
#include <algorithm>

#include "engine/parallel/strategy.h"
#include "engine/plan_builder.h"
#include "engine/runtime.h"
#include "ir/state_name.h"

namespace hearth::engine {
namespace {

class LocalSgd : public Strategy {
 public:
  void compile(PlanBuilder& builder, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes) const override {
    Strategy::compile(builder, train_sizes, eval_sizes);
    Plan& plan = builder.plan();
    plan.outer = builder.finish(
        make_outer_graph(plan.train_program().graph, plan.statistics, plan.options.local), Purpose::step);
  }

  SumOptions sums(const Plan& plan) const override {
    SumOptions sums = Strategy::sums(plan);
    sums.num_micro = num_local_micro(plan.options);
    sums.num_workers = 1;
    return sums;
  }

  void add_local_states(const EngineOptions& options, ir::Graph& graph) const override {
    add_outer_states(graph);
    add_states_of_workers(graph, static_cast<int>(options.num_workers), [](const ir::Value& value) {
      const ir::StateKind kind = ir::parse_state_name(value.name).kind;
      // These states are equal on all workers.
      return kind != ir::StateKind::anchor && kind != ir::StateKind::outer_momentum &&
             kind != ir::StateKind::mask;
    });
  }

  Divisors divisors(const Plan& plan, const Update& update) const override {
    const data::LoaderShare local = share(plan.options);
    const int64_t present = std::clamp<int64_t>(update.num_micro - local.first, 0, local.count);
    return {.num_micro = present,
            .num_samples = static_cast<double>(update.num_samples) * static_cast<double>(present) /
                           static_cast<double>(update.num_micro)};
  }

  /// Returns the mean of all workers' gradient norms.
  double global_norm(Runtime& runtime, double norm) const override {
    std::vector<double> norms(static_cast<size_t>(runtime.plan().options.num_workers));
    runtime.group()->all_gather(std::as_bytes(std::span(&norm, 1)), std::as_writable_bytes(std::span(norms)));
    double sum = 0;
    for (const double one : norms) sum += one;
    return sum / static_cast<double>(norms.size());
  }

  void outer_step(Runtime& runtime) override {
    exec::Executor& outer = runtime.executor(*runtime.plan().outer);
    const EngineOptions& options = runtime.plan().options;
    outer.set_scalar(kInverseWorkers, 1.0F / static_cast<float>(options.num_workers));
    outer.set_scalar(kOuterRate, static_cast<float>(options.local.outer_lr));
    runtime.run(outer);
    runtime.group()->check();
  }
};

}  // namespace

std::unique_ptr<Strategy> make_local_sgd() { return std::make_unique<LocalSgd>(); }

}  // namespace hearth::engine
