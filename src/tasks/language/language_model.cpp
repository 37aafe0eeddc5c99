#include "tasks/language/language_model.h"

#include "models/decoder/decoder.h"
#include "ops/loss/loss.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;

/// Inputs of a graph of a language model, and its decoder's outputs.
struct Decoder {
  engine::Objective::Graph graph;
  ValueId labels = ir::kNone;
  int64_t num_tokens = 0;
  models::DecoderInputs in;
  models::DecoderOutputs out;
};

Decoder build(nn::Builder& builder, const LanguageModelOptions& options, engine::BatchShape shape) {
  const int64_t context = shape.row_length > 0 ? shape.row_length : options.context;
  Decoder made{.num_tokens = shape.num_rows * context};
  const auto input = [&](const char* name) {
    made.graph.inputs.push_back(builder.input(name, {.dtype = DType::i32, .shape = {made.num_tokens}}));
    return made.graph.inputs.back();
  };
  const ValueId tokens = input("tokens");
  made.labels = input("labels");
  const ValueId positions = input("positions");
  made.in = {.tokens = tokens,
             .positions = positions,
             .starts = options.documents ? input("starts") : ir::kNone,
             .num_rows = shape.num_rows,
             .context = context};
  made.out = models::build_decoder(builder, options.config, made.in);
  return made;
}

/// Returns the ids and log-probabilities of the most likely tokens after each token, among the first
/// `vocab_size`.
std::vector<ValueId> top_tokens(nn::Builder& builder, const models::DecoderOutputs& out, ValueId labels,
                                int64_t top_k, int64_t vocab_size, ir::Attrs attrs) {
  attrs.set("k", std::min(top_k, vocab_size));
  attrs.set("vocab", vocab_size);
  return builder.graph().add(ops::head_top_k, {out.hidden, out.head, labels}, attrs);
}

ir::Attrs head_attrs(const LanguageModelOptions& options) {
  return {{"rows", options.head_rows}, {"softcap", options.config.head_cap}};
}

class LanguageModel : public engine::Objective {
 public:
  explicit LanguageModel(LanguageModelOptions options) : options_(std::move(options)) {}
  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    return token_losses(builder, options_, shape);
  }

 private:
  LanguageModelOptions options_;
};

class TeacherModel : public engine::Objective {
 public:
  TeacherModel(LanguageModelOptions options, int64_t top_k, int64_t vocab_size)
      : options_(std::move(options)), top_k_(top_k), vocab_size_(vocab_size) {}
  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    Decoder made = tasks::build(builder, options_, shape);
    made.graph.outputs =
        top_tokens(builder, made.out, made.labels, top_k_, vocab_size_, head_attrs(options_));
    return made.graph;
  }

 private:
  LanguageModelOptions options_;
  int64_t top_k_, vocab_size_;
};

}  // namespace

engine::Objective::Graph token_losses(nn::Builder& builder, const LanguageModelOptions& options,
                                      engine::BatchShape shape) {
  Decoder made = build(builder, options, shape);
  // Evaluations compute the cross-entropy alone, so that runs with and without a teacher can be compared.
  const bool is_training = builder.mode() == nn::Builder::Mode::train;
  std::vector<ValueId> teacher;
  if (options.teacher_top_k > 0) {
    const Shape listed{made.num_tokens, options.teacher_top_k};
    teacher = {builder.input("teacher_ids", {.dtype = DType::i32, .shape = listed}),
               builder.input("teacher_logps", {.dtype = DType::f32, .shape = listed})};
    made.graph.inputs.insert(made.graph.inputs.end(), teacher.begin(), teacher.end());
  } else if (options.teacher && is_training) {
    const nn::Builder::TeacherScope scope(builder, ops::quantization_from_name(options.distill.quantize));
    const ir::Attrs attrs{{"rows", options.head_rows}, {"softcap", options.teacher->head_cap}};
    teacher = top_tokens(builder, models::build_decoder(builder, *options.teacher, made.in), made.labels,
                         options.distill.top_k, options.teacher_vocab_size, attrs);
  }
  std::vector<ValueId> inputs = {made.out.hidden, made.out.head, made.labels};
  ir::Attrs attrs = head_attrs(options);
  if (is_training && !teacher.empty()) {
    inputs.insert(inputs.end(), teacher.begin(), teacher.end());
    attrs.set("divergence", std::string(name_of(options.distill.loss)));
    attrs.set("distill_weight", options.distill.weight);
    attrs.set("temperature", options.distill.temperature);
    attrs.set("beta", options.distill.beta);
  }
  made.graph.losses = builder.op("head_cross_entropy", inputs, attrs);
  return made.graph;
}

std::shared_ptr<const engine::Objective> language_model(LanguageModelOptions options) {
  return std::make_shared<LanguageModel>(std::move(options));
}

std::shared_ptr<const engine::Objective> teacher_model(LanguageModelOptions options, int64_t top_k,
                                                       int64_t vocab_size) {
  return std::make_shared<TeacherModel>(std::move(options), top_k, vocab_size);
}

}  // namespace hearth::tasks
