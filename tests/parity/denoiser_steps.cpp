// Trains a denoiser for denoiser.py: denoiser_steps FOLDER HEIGHT WIDTH GUIDANCE MODEL [LORA]. FOLDER has
// config.json and batches.safetensors, MODEL is its weights in any file that is read: tokens and target f32
// [S, B * T, F] of images of HEIGHT x WIDTH tokens, time and weight f32 [S, B], and what the model is
// conditioned on: labels i32 [S, B], text f32 [S, B * text tokens, D], pooled f32 [S, B, D]. It gets
// found.safetensors: the first batch's prediction, each gradient of its loss, the losses of S steps of AdamW,
// and the prediction after them; with a LORA, which alone is trained then, trained.safetensors too.
#include <fmt/format.h>

#include "base/error.h"
#include "engine/inspect.h"
#include "hub/denoiser_adapter.h"
#include "hub/weights.h"
#include "io/safetensors.h"
#include "models/denoiser/denoiser.h"
#include "tensors.h"

namespace {

using namespace hearth;

/// Of one step.
ir::Type type_of(const GivenTensor& given) {
  return {.dtype = given.dtype,
          .shape = Shape(std::vector<int64_t>(given.shape.begin() + 1, given.shape.end()))};
}

struct Inputs {
  std::vector<const char*> names;
  std::vector<GivenTensor> batches;

  explicit Inputs(const io::SafetensorsFile& file) {
    for (const char* name : {"tokens", "time", "labels", "text", "pooled", "target", "weight"}) {
      if (file.find(name) == nullptr) continue;
      names.push_back(name);
      batches.emplace_back(file, name);
    }
  }
};

class Denoising : public engine::Objective {
 public:
  Denoising(const Inputs& inputs, models::DenoiserConfig config, Extent patches, double guidance)
      : inputs_(inputs), config_(std::move(config)), patches_(patches), guidance_(guidance) {}

  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    Graph graph;
    std::map<std::string, ir::ValueId> in;
    for (const char* optional : {"labels", "text", "pooled"}) in[optional] = ir::kNone;
    for (size_t i = 0; i < inputs_.names.size(); ++i) {
      const std::string name = inputs_.names[i];
      in[name] = builder.input(name, type_of(inputs_.batches[i]));
      graph.inputs.push_back(in[name]);
    }
    const int64_t text_rows = in["text"] == ir::kNone ? 0 : builder.graph().type(in["text"]).shape[0];
    // The same for every sample: there are no constants in a graph.
    const ir::ValueId ones = builder.op("exp", {builder.op("scale", {in["time"]}, {{"factor", 0.0}})});
    const ir::ValueId guidance = builder.op("scale", {ones}, {{"factor", guidance_}});
    ir::ValueId made = models::build_denoiser(builder, config_,
                                              {.tokens = in["tokens"],
                                               .time = in["time"],
                                               .labels = in["labels"],
                                               .text = in["text"],
                                               .pooled = in["pooled"],
                                               .num_rows = shape.num_rows,
                                               .patches = patches_,
                                               .text_tokens = text_rows / shape.num_rows,
                                               .guidance = config_.guidance ? guidance : ir::kNone});
    if (builder.mode() == nn::Builder::Mode::eval) graph.outputs = {made};
    if (config_.out_channels != config_.channels)
      made = builder.op("slice_last", {made}, {{"begin", int64_t{0}}, {"count", config_.features()}});
    graph.losses = builder.op("squared_error", {made, in["target"], in["weight"]});
    return graph;
  }

 private:
  const Inputs& inputs_;
  models::DenoiserConfig config_;
  Extent patches_;
  double guidance_;
};

void run(const fs::path& folder, Extent patches, double guidance, const fs::path& model, const char* lora) {
  const Inputs inputs(io::SafetensorsFile(folder / "batches.safetensors"));
  const models::DenoiserConfig config = models::read_denoiser_config(folder / "config.json");
  const Shape& time = inputs.batches[1].shape;
  const int64_t steps = time[0], rows = time[1];
  engine::Engine engine({.objective = std::make_shared<Denoising>(inputs, config, patches, guidance),
                         .optimizer = {.name = "adamw", .weight_decay = 1e-2},
                         .adapter = hub::denoiser_adapter({.path = lora}),
                         .batch = rows,
                         .num_threads = 2},
                        std::vector{rows}, std::vector{rows});
  engine.initialize();
  hub::load_model(engine, model);
  if (hub::has_adapter(engine)) hub::load_weights(engine, lora);
  const auto batch = [&](int64_t at) {
    engine::MicroBatch made{{}, rows};
    for (size_t i = 0; i < inputs.batches.size(); ++i)
      made.add({inputs.names[i], inputs.batches[i].step(at)});
    return made;
  };
  Found found;
  const auto predict = [&](const char* name) {
    engine.evaluate(batch(0));
    const std::span<const float> made = engine.output(0);
    found.add(name, {std::ssize(made) / config.out_features(), config.out_features()}, made);
  };
  predict("prediction");
  engine::Inspector(engine).gradients(
      batch(0), rows, [&](const nn::Tensor& tensor, std::span<const float> values) {
        found.add("gradient." + tensor.name, tensor.layout.file_shape, values);
      });
  std::vector<float> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const auto next = [&] { return batch(step); };
    losses.push_back(static_cast<float>(engine.train_step(1, rows, next, step, 1e-3).loss));
  }
  found.add("losses", {steps}, losses);
  predict("trained");
  if (hub::has_adapter(engine)) hub::save_weights(engine, folder / "trained.safetensors", false);
  found.write(folder);
}

}  // namespace

int main(int count, char** argv) {
  try {
    run(argv[1], {std::stoll(argv[2]), std::stoll(argv[3])}, std::stod(argv[4]), argv[5],
        count > 6 ? argv[6] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
