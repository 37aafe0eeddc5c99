// Models of images on an emulated GPU: every node has a kernel there, and training takes the processor's
// course.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "engine/engine.h"
#include "tasks/classify/classifier.h"

namespace hearth::engine {
namespace {

constexpr int64_t kBatch = 4;
constexpr int64_t kSide = 8;
constexpr int64_t kImageSteps = 20;
constexpr size_t kSlack = 16;

/// A residual network in small: a shortcut of its own, strides, max and average pooling.
ir::ValueId grow_residual(nn::Builder& builder, ir::ValueId images) {
  ir::ValueId x = builder.relu(builder.batch_norm("bn1", builder.conv("conv1", images, {.out_channels = 6})));
  x = builder.max_pool(x, 3, 1, 1);
  const ir::ValueId shortcut = builder.batch_norm(
      "bn2", builder.conv("conv2", x, {.out_channels = 10, .kernel = 1, .stride = 2, .padding = 0}));
  x = builder.relu(
      builder.batch_norm("bn3", builder.conv("conv3", x, {.out_channels = 10, .stride = 2, .bias = true})));
  x = builder.batch_norm("bn4", builder.conv("conv4", x, {.out_channels = 10}));
  x = builder.dropout("drop", builder.relu(builder.add(x, shortcut)), 0.2);
  return builder.linear("fc", builder.global_avg_pool(x), 10);
}

/// A U-Net in small: down, up again beside what went down, both ways to resize, and normalized features.
ir::ValueId grow_u(nn::Builder& builder, ir::ValueId images) {
  const ir::ValueId top = builder.relu(builder.conv("conv1", images, {.out_channels = 6, .bias = true}));
  ir::ValueId x = builder.max_pool(top, 2, 2);
  x = builder.relu(builder.conv("conv2", x, {.out_channels = 6, .bias = true}));
  x = builder.add(builder.resize(x, kSide, kSide, true),
                  builder.resize(builder.resize(top, 5, 3, true), kSide, kSide, false));
  x = builder.relu(builder.conv("conv3", builder.add(x, top), {.out_channels = 8, .bias = true}));
  return builder.linear("fc", builder.layer_norm("norm", builder.global_avg_pool(x)), 10);
}

struct Net {
  const char* name;
  tasks::ClassifierOptions options;
  DType precision;
  double tolerance;  ///< of losses, relative
};
void PrintTo(const Net& net, std::ostream* out) { *out << net.name; }

/// One batch, again and again.
class ImageCourse {
 public:
  ImageCourse(const Net& net, exec::Backend backend)
      : engine_(options_of(net, backend), std::vector{kBatch}, std::vector{kBatch}),
        images_(kBatch * kSide * kSide * 3 + kSlack),
        labels_(kBatch + kSlack) {
    PhiloxSequence random(3, 0);
    for (float& value : images_) value = random.uniform(-1, 1);
    for (int32_t& label : labels_) label = static_cast<int32_t>(random.below(10));
    engine_.initialize();
  }
  MicroBatch batch() const { return {{{"images", images_.data()}, {"labels", labels_.data()}}, kBatch}; }
  double step() {
    return engine_
        .train_step(
            1, kBatch, [&] { return batch(); }, num_steps_++, 0.02)
        .loss;
  }
  Engine& engine() { return engine_; }

 private:
  static EngineOptions options_of(const Net& net, exec::Backend backend) {
    tasks::ClassifierOptions options = net.options;
    options.model.image_size = kSide;
    EngineOptions made{.objective = tasks::classifier(options),
                       .batch = kBatch,
                       .precision = net.precision,
                       .seed = 5,
                       .num_threads = 2,
                       .backend = backend};
    made.optimizer.momentum = 0.9;
    return made;
  }

  Engine engine_;
  std::vector<float> images_;
  std::vector<int32_t> labels_;
  int64_t num_steps_ = 0;
};

/// The ops that a step lends to the host.
std::string lent(const Engine& engine) {
  std::string names;
  for (const ir::Node& node : engine.plan().train_program().graph.nodes) {
    if (!node.op->gpu && !node.op->is_view) names += std::string(node.op->name) + " ";
  }
  return names;
}

class GpuImages : public testing::TestWithParam<Net> {};

TEST_P(GpuImages, TrainLikeOnTheProcessorWithoutIt) {
  ImageCourse here(GetParam(), exec::Backend::cpu), there(GetParam(), exec::Backend::gpu);
  EXPECT_EQ(there.engine().plan().train_program().num_host_nodes, 0) << lent(there.engine());
  for (int64_t step = 0; step < kImageSteps; ++step) {
    const double want = here.step();
    ASSERT_NEAR(there.step(), want, GetParam().tolerance * want) << "step " << step;
  }
  EXPECT_NEAR(there.engine().evaluate(there.batch()), here.engine().evaluate(here.batch()),
              10 * GetParam().tolerance);
  EXPECT_EQ(there.engine().output(tasks::kCorrect)[0], here.engine().output(tasks::kCorrect)[0]);
}

INSTANTIATE_TEST_SUITE_P(
    Nets, GpuImages,
    testing::Values(Net{"mlp", {.model = {.name = "mlp", .hidden = {24}}}, DType::f32, 1e-4},
                    Net{"simplecnn", {.model = {.name = "simplecnn"}}, DType::f32, 1e-4},
                    Net{"smallcnn", {.model = {.name = "smallcnn"}}, DType::f32, 1e-4},
                    Net{"residual", {.build_model = grow_residual}, DType::f32, 1e-4},
                    Net{"u", {.build_model = grow_u}, DType::f32, 1e-4},
                    Net{"simplecnn_bf16", {.model = {.name = "simplecnn"}}, DType::bf16, 2e-2},
                    Net{"residual_bf16", {.build_model = grow_residual}, DType::bf16, 2e-2}),
    [](const testing::TestParamInfo<Net>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hearth::engine
