#include "encoders/model_part.h"

#include "engine/gpu_options.h"
#include "engine/plan_builder.h"
#include "hub/weights.h"

namespace hearth::encoders {
namespace {

class PartObjective : public engine::Objective {
 public:
  explicit PartObjective(std::function<Graph(nn::Builder&)> grow) : grow_(std::move(grow)) {}
  Graph build(nn::Builder& builder, engine::BatchShape) const override { return grow_(builder); }

 private:
  std::function<Graph(nn::Builder&)> grow_;
};

constexpr int64_t kOneSize[] = {1};

engine::EngineOptions part_options(std::function<ModelPart::Graph(nn::Builder&)> grow,
                                   const Compute& compute) {
  engine::EngineOptions options{.objective = std::make_shared<PartObjective>(std::move(grow)),
                                .num_threads = compute.num_threads,
                                .winograd = compute.winograd};
  if (compute.gpu) engine::use_gpu(options, *compute.gpu, compute.self_test);
  return options;
}

}  // namespace

ModelPart::ModelPart(std::function<Graph(nn::Builder&)> grow, const Compute& compute)
    : engine_(std::make_unique<engine::Engine>(part_options(std::move(grow), compute),
                                               std::span<const int64_t>(), kOneSize)) {}

int64_t ModelPart::needed_bytes(std::function<Graph(nn::Builder&)> grow, const Compute& compute) {
  return engine::measure_plan(part_options(std::move(grow), compute), {}, kOneSize).memory_bytes();
}

void ModelPart::load(const io::WeightFiles& files, const std::string& prefix) {
  for (const nn::Tensor& tensor : engine_->plan().tensors)
    hub::load_tensor(*engine_, tensor, prefix + tensor.name, files, files.path());
}

std::span<const float> ModelPart::run(const engine::MicroBatch& inputs) {
  engine_->evaluate(inputs);
  return engine_->output(0);
}

}  // namespace hearth::encoders
