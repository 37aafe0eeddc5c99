// ZeRO-1 (arXiv 1910.02054): each worker computes gradients of the full model; the worker that owns the
// optimizer state of a weight updates the weight.
#include "engine/parallel/strategy.h"

namespace hearth::engine {
namespace {

class Zero : public Strategy {
 public:
  void begin_graph(Plan& plan, const passes::TrainGraph& train, Purpose,
                   passes::PassContext&) const override {
    if (plan.owners.empty()) plan.owners = owners_of(train.graph, static_cast<int>(plan.options.num_workers));
  }
  SumOptions sums(const Plan& plan) const override {
    SumOptions sums = Strategy::sums(plan);
    sums.owners = plan.owners;
    return sums;
  }
};

}  // namespace

std::unique_ptr<Strategy> make_zero() { return std::make_unique<Zero>(); }

}  // namespace hearth::engine
