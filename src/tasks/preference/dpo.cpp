#include "tasks/preference/dpo.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;

class Dpo : public engine::Objective {
 public:
  Dpo(LanguageModelOptions model, recipe::Dpo options) : model_(std::move(model)), options_(options) {}

  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    const int64_t answers = 2 * shape.num_rows;
    Graph result = token_losses(builder, model_, {.num_rows = answers, .row_length = shape.row_length});
    const ValueId logps = sums_of_rows(builder, result.losses, answers);
    const ValueId reference = builder.input("reference", {.dtype = DType::f32, .shape = {answers}});
    result.inputs.push_back(reference);
    result.losses = builder.op("dpo_loss", {logps, reference},
                               {{"beta", options_.beta}, {"smoothing", options_.label_smoothing}});
    if (builder.mode() == nn::Builder::Mode::eval) result.outputs = {logps};
    return result;
  }

 private:
  static ValueId sums_of_rows(nn::Builder& builder, ValueId losses, int64_t rows) {
    const int64_t length = builder.graph().type(losses).shape[0] / rows;
    const ValueId table = builder.op("reshape", {losses}, {{"shape", std::vector<int64_t>{rows, length}}});
    const ValueId columns = builder.op("transpose", {table}, {{"perm", std::vector<int64_t>{1, 0}}});
    return builder.op("scale", {builder.op("sum_leading", {columns})}, {{"factor", -1.0}});
  }

  LanguageModelOptions model_;
  recipe::Dpo options_;
};

}  // namespace

std::shared_ptr<const engine::Objective> dpo(LanguageModelOptions model, recipe::Dpo options) {
  return std::make_shared<Dpo>(std::move(model), options);
}

}  // namespace hearth::tasks
