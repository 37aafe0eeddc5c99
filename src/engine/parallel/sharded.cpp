// Sharded weights: one worker stores each weight with its optimizer states. The other workers receive the
// weight when they need it and then free it (passes/parallel/shard_weights.h).
#include "engine/parallel/strategy.h"
#include "passes/rewrite.h"

namespace hearth::engine {
namespace {

class Sharded : public Strategy {
 public:
  bool evaluates_jointly() const override { return true; }
  // In every micro-batch, each worker sends the weights that it stores to the others.
  bool exchanges_every_micro() const override { return true; }

  void begin_graph(Plan& plan, const passes::TrainGraph& train, Purpose purpose,
                   passes::PassContext& context) const override {
    const EngineOptions& options = plan.options;
    if (plan.owners.empty()) plan.owners = owners_of(train.graph, static_cast<int>(options.num_workers));
    // compile_gradients() is for a single worker, so its weights are not sharded.
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
