#include "tasks/diffuse/denoiser_objective.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;

constexpr int64_t kNumSettings = sizeof(DenoiseSettings) / sizeof(float);

ir::Type floats(Shape shape) { return {.dtype = DType::f32, .shape = std::move(shape)}; }

class DenoiserObjective : public engine::Objective {
 public:
  explicit DenoiserObjective(DenoiserOptions options) : options_(std::move(options)) {}

  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    const models::DenoiserConfig& model = options_.format.model;
    const Extent latents = shape.row_length > 0 ? extent_of(shape.row_length) : options_.latents;
    const int64_t rows = shape.num_rows, features = model.features();
    models::DenoiserInputs in{
        .num_rows = rows,
        .patches = {latents.height / model.patch, latents.width / model.patch},
        .text_tokens = options_.format.has_labels() ? model.class_tokens : options_.format.text_tokens};
    const int64_t tokens = rows * in.patches.num_pixels();
    in.tokens = builder.input("tokens", floats({tokens, features}));
    const ValueId target = builder.input("target", floats({tokens, features}));
    const ValueId settings = builder.input("settings", floats({rows, kNumSettings}));
    const auto column = [&](int64_t begin) {
      const ValueId one = builder.op("slice_last", {settings}, {{"begin", begin}, {"count", int64_t{1}}});
      return builder.op("reshape", {one}, {{"shape", std::vector<int64_t>{rows}}});
    };
    in.time = column(0);
    const ValueId weight = column(1);
    if (model.guidance) in.guidance = column(2);
    Graph result{.inputs = {in.tokens, target, settings}};
    if (options_.format.has_labels()) {
      in.labels = builder.input("labels", {.dtype = DType::i32, .shape = {rows}});
      result.inputs.push_back(in.labels);
    } else {
      in.text = builder.input("text", floats({rows * in.text_tokens, model.text_width}));
      result.inputs.push_back(in.text);
      if (model.pooled_width > 0) {
        in.pooled = builder.input("pooled", floats({rows, model.pooled_width}));
        result.inputs.push_back(in.pooled);
      }
    }
    ValueId predicted = models::build_denoiser(builder, model, in);
    // Ignores the channels after the first model.channels, in which a DiT may predict a variance; the
    // variance is not trained.
    if (model.out_channels > model.channels)
      predicted = builder.op("slice_last", {predicted}, {{"begin", int64_t{0}}, {"count", features}});
    result.losses = builder.op("squared_error", {predicted, target, weight});
    if (builder.mode() == nn::Builder::Mode::train) return result;
    result.outputs = {builder.op("cast", {predicted}, {{"dtype", std::string("f32")}})};
    return result;
  }

 private:
  DenoiserOptions options_;
};

}  // namespace

std::shared_ptr<const engine::Objective> denoiser_objective(DenoiserOptions options) {
  return std::make_shared<DenoiserObjective>(std::move(options));
}

}  // namespace hearth::tasks
