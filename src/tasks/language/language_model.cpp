#include "tasks/language/language_model.h"

#include "models/decoder/decoder.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;

class LanguageModel : public engine::Objective {
 public:
  explicit LanguageModel(LanguageModelOptions options) : options_(std::move(options)) {}
  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    return token_losses(builder, options_, shape);
  }

 private:
  LanguageModelOptions options_;
};

}  // namespace

engine::Objective::Graph token_losses(nn::Builder& builder, const LanguageModelOptions& options,
                                      engine::BatchShape shape) {
  const int64_t context = shape.row_length > 0 ? shape.row_length : options.context;
  const auto input = [&](const char* name) {
    return builder.input(name, {.dtype = DType::i32, .shape = {shape.num_rows * context}});
  };
  const ValueId tokens = input("tokens");
  const ValueId labels = input("labels");
  const ValueId positions = input("positions");
  engine::Objective::Graph result{.inputs = {tokens, labels, positions}};
  ValueId starts = ir::kNone;
  if (options.documents) result.inputs.push_back(starts = input("starts"));
  const models::DecoderOutputs out = models::build_decoder(builder, options.config,
                                                           {.tokens = tokens,
                                                            .positions = positions,
                                                            .starts = starts,
                                                            .num_rows = shape.num_rows,
                                                            .context = context});
  result.losses = builder.op("head_cross_entropy", {out.hidden, out.head, labels},
                             {{"rows", options.head_rows}, {"softcap", options.config.head_cap}});
  return result;
}

std::shared_ptr<const engine::Objective> language_model(LanguageModelOptions options) {
  return std::make_shared<LanguageModel>(std::move(options));
}

}  // namespace hearth::tasks
