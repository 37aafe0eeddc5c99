// Sharded weights: each weight is on one worker, with its states. Other workers receive it while they need it
// (passes/parallel/shard_weights.h).
#include "engine/parallel/strategy.h"
#include "passes/rewrite.h"

namespace hearth::engine {
namespace {

class Sharded : public Strategy {
 public:
  bool evaluates_jointly() const override { return true; }
  // Every worker sends its weights to the others in every micro-batch.
  bool exchanges_every_micro() const override { return true; }

  void begin_graph(Plan& plan, const passes::TrainGraph& train, Purpose purpose,
                   passes::PassContext& context) const override {
    const EngineOptions& options = plan.options;
    if (plan.owners.empty()) plan.owners = owners_of(train.graph, static_cast<int>(options.num_workers));
    // The graph of compile_gradients() runs on one worker alone.
    if (purpose == Purpose::gradients) return;
    context.shard = {
        .owners = &plan.owners, .rank = options.rank, .through_host = context.all_reduce.through_host};
  }
  void end_graph(ir::Graph& graph, size_t first) const override { passes::hoist(graph, first); }
  SumOptions sums(const Plan& plan) const override {
    SumOptions sums = Strategy::sums(plan);
    sums.owners = plan.owners;
    sums.shards_weights = true;
    return sums;
  }
};

}  // namespace

std::unique_ptr<Strategy> make_sharded() { return std::make_unique<Sharded>(); }

}  // namespace hearth::engine
